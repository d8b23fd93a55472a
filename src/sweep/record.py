"""What a sweep asked for, and what of it is there: ``sweep.json`` beside the run directories' own word."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..runs.directory import RunDirectoryError, write_atomic
from ..runs.lock import Lock
from ..runs.run import Run, best_match, find_runs
from .rows import Job, Row, row_of
from .verdicts import Verdict

SWAPPED = "swapped.json"
"""In a run directory: the evaluation of its policies exchanged."""


@dataclass(frozen=True)
class SweepRecord:
    """The plan of a sweep.  ``runs`` is the folder below which its runs are looked for; ``evaluations`` are what each
    run owes beside training ("swapped").

    Nothing here says what is finished: that is read from the run directories, and the errors of failed jobs from
    ``errors/TRAINING_HASH.txt``, each time.
    """

    folder: Path
    name: str
    question: str
    runs: Path
    evaluations: tuple[str, ...]
    verdicts: Sequence[Verdict]
    jobs: Sequence[Job]

    def write(self) -> None:
        content = asdict(self)
        del content["folder"]
        content["runs"] = os.path.relpath(self.runs, self.folder)  # the tree of runs can be moved as a whole
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self.folder / "sweep.json", json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> SweepRecord:
        """Raises :class:`RunDirectoryError` where ``folder`` holds no sweep, or one that cannot be read."""
        file = folder / "sweep.json"
        if not file.is_file():
            raise RunDirectoryError(f"{folder} is neither a run directory nor a sweep: it has no {file.name}")
        try:
            content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            jobs = [Job(**job | {"overrides": tuple(job["overrides"])}) for job in content.pop("jobs")]
            verdicts = [Verdict(**verdict) for verdict in content.pop("verdicts")]
            runs, evaluations = folder / content.pop("runs"), tuple(content.pop("evaluations"))
            runs = Path(os.path.relpath(runs)) if not folder.is_absolute() else Path(os.path.abspath(runs))
            return cls(folder, runs=runs, evaluations=evaluations, verdicts=verdicts, jobs=jobs, **content)
        except (ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(f"{file} cannot be read: {error!r}") from error

    def found(self) -> list[Run | None]:
        """For each job the finished run that answers it best."""
        there = list(find_runs(self.runs))
        return [best_match(there, job.training, job.evaluation) for job in self.jobs]

    def owed(self, run: Run) -> list[str]:
        """The evaluations that ``run`` does not have."""
        return [name for name in self.evaluations if f"{name}/success" not in extra_figures(run)]

    def claimed(self, training: str) -> Lock:
        """For the one process that trains and evaluates the job with this hash, whichever sweep of ``runs`` asks.

        Raises :class:`..runs.lock.HeldError` where another does.
        """
        folder = self.runs / "sweeps" / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return Lock(folder / training, f"training {training}")

    def rows(self) -> list[Row]:
        """One row a job: finished, failed (with the error) or missing."""
        return [self._row(job, run) for job, run in zip(self.jobs, self.found(), strict=True)]

    def _row(self, job: Job, run: Run | None) -> Row:
        extra = extra_figures(run) if run else {}
        lacks = self.owed(run) if run else []
        error = error_file(self.folder, job.training)
        # An error is history once the run is there, and as asked.
        if error.exists() and (run is None or lacks or run.stale(job.evaluation)):
            return row_of(job, run, extra, "failed", error.read_text(encoding="utf-8").partition("\n")[0])
        if run is None:
            return row_of(job, None, {}, "missing")
        note = f"not evaluated: {', '.join(lacks)}" if lacks else ""
        return row_of(job, run, extra, "missing" if lacks else "finished", note)


def error_file(folder: Path, training: str) -> Path:
    """Where the last error of a job stands; the first line is the message."""
    return folder / "errors" / f"{training}.txt"


def extra_figures(run: Run) -> Mapping[str, Any]:
    """Figures that were added to a run after training, with flat keys."""
    file = run.path / SWAPPED
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise RunDirectoryError(f"{file} cannot be read: {error}") from error
    return {f"swapped/{key}": value for key, value in content.items()}
