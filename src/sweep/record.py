"""The plan of a sweep in ``sweep.json``, and the runs that answer it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..runs.directory import write_atomic
from ..runs.files import RunDirectoryError
from ..runs.index import best_match, readable_runs
from ..runs.lock import Lock
from ..runs.run import Run
from .rows import SweepJob, TableRow, row_of
from .summary import SweepSummary
from .verdicts import Claim


@dataclass(frozen=True)
class SweepRecord:
    """The plan of a sweep.  Its runs are below the folder ``runs``; ``evaluations`` are to be made of each finished run
    (``swapped``, ``sealed``: on the test tasks that the seed ``sealed`` draws).  ``threshold`` is the success that the
    table gives the completions for.

    Nothing here says what is finished: each time, that is read from the run directories, and the errors of failed jobs
    from ``errors/TRAINING_HASH.txt``.
    """

    folder: Path
    name: str
    question: str
    runs: Path
    evaluations: tuple[str, ...]
    claims: Sequence[Claim]
    jobs: Sequence[SweepJob]
    threshold: float | None = None
    sealed: int | None = None

    def write(self) -> None:
        content = asdict(self)
        del content["folder"]
        content["verdicts"] = content.pop("claims")
        content["runs"] = os.path.relpath(self.runs, self.folder)  # the tree of runs can be moved as a whole
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self.folder / "sweep.json", json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> SweepRecord:
        """Raises :class:`~troupe.runs.files.RunDirectoryError` where ``folder`` holds no sweep, or one that cannot be
        read."""
        file = folder / "sweep.json"
        if not file.is_file():
            raise RunDirectoryError(f"{folder} is neither a run directory nor a sweep: it has no {file.name}")
        try:
            content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            jobs = [SweepJob(**job | {"overrides": tuple(job["overrides"])}) for job in content.pop("jobs")]
            claims = [Claim(**claim) for claim in content.pop("verdicts")]
            runs, evaluations = folder / content.pop("runs"), tuple(content.pop("evaluations"))
            runs = Path(os.path.relpath(runs)) if not folder.is_absolute() else Path(os.path.abspath(runs))
            return cls(folder, runs=runs, evaluations=evaluations, claims=claims, jobs=jobs, **content)
        except (ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(f"{file} cannot be read: {error!r}") from error

    def summary(self) -> SweepSummary:
        """What the tables are made of."""
        return SweepSummary(self.name, self.question, tuple(self.claims), self.threshold, tuple(self.rows()))

    def best_runs(self, among: Sequence[Run] | None = None) -> list[Run | None]:
        """For each job the finished run that answers it best, of those below ``runs`` that can be read, or of
        ``among``."""
        runs = readable_runs(self.runs)[0] if among is None else among
        return [best_match(runs, job.training, job.evaluation) for job in self.jobs]

    def missing_evaluations(self, run: Run) -> list[str]:
        """The evaluations that are still to be made of ``run``."""
        results = {name: run.of_sweeps[name] for name in self.evaluations}
        return [
            name
            for name, result in results.items()
            if "success" not in result or (name == "sealed" and result.get("task_seed") != self.sealed)
        ]

    def jobs_to_run(self, rerun_stale: bool) -> list[SweepJob]:
        """The jobs that are to be trained or evaluated, one per training hash."""
        jobs: dict[str, SweepJob] = {}
        for job, run in zip(self.jobs, self.best_runs(), strict=True):
            if run is None or self.missing_evaluations(run) or (rerun_stale and run.stale(job.evaluation)):
                jobs.setdefault(job.training, job)
        return list(jobs.values())

    def lock(self, training: str) -> Lock:
        """The lock of the job with this training hash, for all sweeps that share the folder ``runs``.

        Raises :class:`..runs.lock.HeldError` where another process has it.
        """
        folder = self.runs / "sweeps" / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return Lock(folder / training, f"training {training}")

    def rows(self, among: Sequence[Run] | None = None) -> list[TableRow]:
        """One row per job: finished, failed (with the error) or missing; see :meth:`best_runs`."""
        return [self._row(job, run) for job, run in zip(self.jobs, self.best_runs(among), strict=True)]

    def _row(self, job: SweepJob, run: Run | None) -> TableRow:
        missing = self.missing_evaluations(run) if run else []
        error = error_file(self.folder, job.training)
        # The error of a job that has a run by now, as the plan wants it, is out of date.
        if error.exists() and (run is None or missing or run.stale(job.evaluation)):
            return row_of(job, run, "failed", error.read_text(encoding="utf-8").partition("\n")[0])
        if run is None:
            return row_of(job, None, "missing")
        note = f"not evaluated: {', '.join(missing)}" if missing else ""
        return row_of(job, run, "missing" if missing else "finished", note)


def error_file(folder: Path, training: str) -> Path:
    """The file of a job's last error; its first line is the message."""
    return folder / "errors" / f"{training}.txt"
