"""Several evaluations of ``troupe eval``, as many at a time as there are jobs."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Generator, Sequence
from contextlib import chdir

from hydra import compose
from joblib import Parallel, delayed
from rich.console import Console

from ..errors import ConfigError
from ..setup.command_line import explains_itself, with_open_keys
from ..setup.composition import configurations
from ..sweep.launcher import ending_with
from ..sweep.outcomes import Outcomes
from .eval import run


def play(evaluations: Sequence[Sequence[str]], jobs: int, config_dir: str | None) -> Generator[Outcomes]:
    """The outcomes of the evaluations of these keys, in their order; one that is kept is not played again.

    With more than one of ``jobs`` they are played by worker processes, which end when this process does.

    Raises :class:`~troupe.errors.ConfigError`, in its place, for an evaluation that is refused or fails.
    """
    jobs = min(jobs, len(evaluations))
    if jobs < 2:
        for words in evaluations:
            with configurations(config_dir):
                outcomes = _outcomes(words)
            yield _or_raise(outcomes)
        return
    tasks = (delayed(_in_worker)(words, config_dir, os.getcwd(), os.getpid()) for words in evaluations)
    played = Parallel(n_jobs=jobs, return_as="generator")(tasks)
    try:
        yield from map(_or_raise, played)
    finally:
        with warnings.catch_warnings():  # joblib warns of the tasks that it then cancels
            warnings.simplefilter("ignore")
            played.close()


def _in_worker(words: Sequence[str], config_dir: str | None, folder: str, parent: int) -> Outcomes | str:
    """The worker may be of an earlier call, in another folder."""
    with ending_with(parent, local=True), chdir(folder), configurations(config_dir):
        return _outcomes(words)


def _outcomes(words: Sequence[str]) -> Outcomes | str:
    """Those of the evaluation's first condition, or why there are none: not every error can be sent by a worker."""
    try:
        evaluation = run(compose("eval", overrides=with_open_keys(words)), Console(file=io.StringIO()))
        first = next(iter(evaluation.conditions))
        return Outcomes.of([row for row in evaluation.rows() if row["condition"] == first])
    except Exception as error:
        if not explains_itself(error):
            raise
        return f"{' '.join(words)}: {error}"


def _or_raise(outcomes: Outcomes | str) -> Outcomes:
    if isinstance(outcomes, str):
        raise ConfigError(outcomes)
    return outcomes
