"""Several evaluations of ``troupe eval``, as many at a time as there are jobs."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence

from hydra import compose
from joblib import Parallel, delayed
from rich.console import Console

from ..setup.composition import configurations
from ..sweep.outcomes import Outcomes
from ..sweep.parent import ending_with
from .eval import run
from .start import with_open_keys


def play(evaluations: Sequence[Sequence[str]], jobs: int, config_dir: str | None) -> Iterator[Outcomes]:
    """The outcomes of the evaluations of these keys, in their order; one that is kept is not played again.

    With more than one of ``jobs`` they are played by worker processes, which end with this one.
    """
    jobs = min(jobs, len(evaluations))
    if jobs < 2:
        with configurations(config_dir):
            for words in evaluations:
                yield _outcomes(words)
        return
    parallel = Parallel(n_jobs=jobs, return_as="generator")
    yield from parallel(delayed(_in_worker)(words, config_dir, os.getpid()) for words in evaluations)


def _in_worker(words: Sequence[str], config_dir: str | None, parent: int) -> Outcomes:
    with ending_with(parent, local=True), configurations(config_dir):
        return _outcomes(words)


def _outcomes(words: Sequence[str]) -> Outcomes:
    """Of the first condition."""
    evaluation = run(compose("eval", overrides=with_open_keys(words)), Console(file=io.StringIO()))
    first = next(iter(evaluation.conditions))
    return Outcomes.of([row for row in evaluation.rows() if row["condition"] == first])
