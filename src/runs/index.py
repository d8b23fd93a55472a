"""The runs below a folder, found by a walk each time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from .files import CONFIG, METRICS, VERSIONS, RunDirectoryError
from .run import RunReader


class Finished(Protocol):
    """What :func:`best_match` asks of a run, or of what is left of one."""

    @property
    def path(self) -> Path: ...
    @property
    def training_hash(self) -> str: ...
    @property
    def finished(self) -> bool: ...
    def stale(self, evaluation: Mapping[str, Any] | None = None) -> tuple[str, ...]: ...


Answer = TypeVar("Answer", bound=Finished)


def is_run(path: Path) -> bool:
    """Whether ``path`` is a run directory; an evaluation's folder has no ``metrics.jsonl``."""
    return all(os.path.isfile(path / name) for name in (CONFIG, VERSIONS, METRICS))


def find_runs(root: Path) -> Iterator[RunReader]:
    """Every run below ``root``, in the order of their paths; none where there is no such folder.  Reads no file."""
    for folder, below, _ in os.walk(root):
        below.sort()
        if is_run(Path(folder)):
            below.clear()
            yield RunReader(Path(folder))


def readable_runs(root: Path) -> tuple[list[RunReader], list[str]]:
    """The runs below ``root`` whose configuration, versions and summary can be read, and sentences about the others."""
    runs, problems = [], []
    for run in find_runs(root):
        try:
            _ = run.config["loop"], run.summary, run.code, run.of_sweeps
            runs.append(run)
        except RunDirectoryError as error:
            problems.append(f"{error} It is left out.")
        except KeyError as error:
            problems.append(f"{run.path}: config.yaml has no {error}. It is left out.")
    return runs, problems


def best_match(runs: Iterable[Answer], training: str, evaluation: Mapping[str, Any]) -> Answer | None:
    """Of the finished runs with this training hash, the one with the fewest reasons to be stale, then the newest."""
    matching = [run for run in runs if run.training_hash == training and run.finished]
    return max(matching, key=lambda run: (*_freshness(run, evaluation), run.path.name), default=None)


def _freshness(run: Finished, evaluation: Mapping[str, Any]) -> tuple[bool, ...]:
    reasons = run.stale(evaluation)
    return tuple(reason not in reasons for reason in ("code", "configuration", "evaluation"))
