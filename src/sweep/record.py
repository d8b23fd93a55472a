"""The plan of a sweep in ``sweep.json``, the runs that answer it, and what the missing ones will cost, by what earlier
runs have cost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ..errors import no_folder, number_of
from ..runs.bounded import read_content
from ..runs.directory import write_atomic
from ..runs.files import SWEEP, RunDirectoryError
from ..runs.index import best_match, readable_runs
from ..runs.lock import Lock
from ..runs.run import RunReader
from .claims import Claim
from .rows import SweepJob, TableRow, row_of, without_metric
from .summary import StoredRun, SweepSummary, stored_runs, why_unread


@dataclass(frozen=True)
class SweepRecord:
    """The plan of a sweep.  Its runs are below the folder ``runs``; ``evaluations`` are to be made of each finished run
    (``swapped``, ``sealed``: on the test tasks that the seed ``sealed`` draws).  ``threshold`` is the success that the
    table gives the completions for.  The runs in the summaries ``finished`` count, too; their folders are gone.

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
    finished: tuple[Path, ...] = ()

    def write(self) -> None:
        content = asdict(self)
        del content["folder"]
        content["verdicts"] = content.pop("claims")
        content["runs"] = os.path.relpath(self.runs, self.folder)  # the tree of runs can be moved as a whole
        content["finished"] = [str(file) for file in self.finished]
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self.folder / SWEEP, json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> SweepRecord:
        """Raises :class:`~troupe.runs.files.RunDirectoryError` where ``folder`` holds no sweep, or one that cannot be
        read."""
        file = folder / SWEEP
        if not file.is_file():
            reason = f"it has no {SWEEP}" if folder.is_dir() else no_folder(folder)
            below = ", ".join(str(each.parent) for each in sorted(folder.glob(f"*/{SWEEP}")))
            reason += f"; sweeps below it: {below}" if below else ""
            raise RunDirectoryError(f"{folder} is neither a run directory nor a sweep: {reason}")
        try:
            content: dict[str, Any] = read_content(folder, file.name)
            jobs = [SweepJob(**job | {"overrides": tuple(job["overrides"])}) for job in content.pop("jobs")]
            claims = [Claim(**claim) for claim in content.pop("verdicts")]
            runs, evaluations = folder / content.pop("runs"), tuple(content.pop("evaluations"))
            runs = Path(os.path.relpath(runs)) if not folder.is_absolute() else Path(os.path.abspath(runs))
            finished = tuple(map(Path, content.pop("finished", ())))
            for key in ("adopted", "block"):  # of older versions: which runs were to be made, and are by now
                content.pop(key, None)
            parts = {"claims": claims, "jobs": jobs, "finished": finished, **content}
            return cls(folder, runs=runs, evaluations=evaluations, **parts)
        except (ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(f"{file} cannot be read: {why_unread(error)}") from error

    def summary(self) -> SweepSummary:
        """What the tables are made of."""
        return SweepSummary(self.name, self.question, tuple(self.claims), self.threshold, tuple(self.rows()))

    def best_runs(self, among: Sequence[RunReader] | None = None) -> list[RunReader | StoredRun | None]:
        """For each job the finished run that answers it best, of those below ``runs`` that can be read, or ``among``,
        and in the summaries ``finished``.

        Raises :class:`~troupe.runs.files.RunDirectoryError` where one of ``finished`` cannot be read.
        """
        runs: list[RunReader | StoredRun] = [*(readable_runs(self.runs)[0] if among is None else among)]
        runs += self._stored_runs()
        return [best_match(runs, job.training, job.evaluation) for job in self.jobs]

    def unanswering(self) -> list[StoredRun]:
        """The runs in ``finished`` that answer no job."""
        jobs = {job.training for job in self.jobs}
        return [run for file in self.finished for run in stored_runs(file) if run.training_hash not in jobs]

    def _stored_runs(self) -> list[StoredRun]:
        """Those in ``finished``, of one that is in several files that of the first, so that what was played with runs
        of one file stays together."""
        runs = dict[str, StoredRun]()
        for file in self.finished:
            for run in stored_runs(file):
                runs.setdefault(run.training_hash, run)
        return list(runs.values())

    def missing_evaluations(self, run: RunReader) -> list[str]:
        """The evaluations that are still to be made of ``run``."""
        results = {name: run.of_sweeps[name] for name in self.evaluations}
        return [
            name
            for name, result in results.items()
            if "success" not in result or (name == "sealed" and result.get("task_seed") != self.sealed)
        ]

    def jobs_to_run(self, rerun_stale: bool) -> list[SweepJob]:
        """The jobs that are to be trained or evaluated, one per training hash; all of one seed before the next, so that
        a sweep that ends early has whole pairs."""
        jobs: dict[str, SweepJob] = {}
        for job, run in zip(self.jobs, self.best_runs(), strict=True):
            unevaluated = isinstance(run, RunReader) and self.missing_evaluations(run)
            if run is None or unevaluated or (rerun_stale and run.stale(job.evaluation)):
                jobs.setdefault(job.training, job)
        seeds = list(dict.fromkeys(job.seed for job in self.jobs))
        return sorted(jobs.values(), key=lambda job: seeds.index(job.seed))

    def lock(self, training: str) -> Lock:
        """The lock of the job with this training hash, for all sweeps that share the folder ``runs``.

        Raises :class:`..runs.lock.HeldError` where another process has it.
        """
        folder = self.runs / "sweeps" / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return Lock(folder / training, f"training {training}")

    def rows(self, among: Sequence[RunReader] | None = None) -> list[TableRow]:
        """One row per job: finished, failed (with the error) or missing; see :meth:`best_runs`."""
        return [self._row(job, run) for job, run in zip(self.jobs, self.best_runs(among), strict=True)]

    def _row(self, job: SweepJob, run: RunReader | StoredRun | None) -> TableRow:
        row = self._row_of(job, run)
        # What was played on the tasks of another seed, of another sweep or an earlier plan, is no result of this one.
        return row if row.get("sealed_seed") in (None, self.sealed) else without_metric(row, "sealed")

    def _row_of(self, job: SweepJob, run: RunReader | StoredRun | None) -> TableRow:
        missing = self.missing_evaluations(run) if isinstance(run, RunReader) else []
        error = error_file(self.folder, job.training)
        # The error of a job that has a run by now, as the plan wants it, is out of date.
        failed = error.exists() and (run is None or missing or run.stale(job.evaluation))
        note = error.read_text(encoding="utf-8").partition("\n")[0] if failed else ""
        if isinstance(run, StoredRun):
            row = run.answer(job, self.evaluations, self.sealed)
            return row | ({"status": "failed", "note": note} if failed else {})
        if failed:
            return row_of(job, run, "failed", note)
        if run is None:
            return row_of(job, None, "missing")
        note = f"not evaluated: {', '.join(missing)}" if missing else ""
        return row_of(job, run, "missing" if missing else "finished", note)


def error_file(folder: Path, training: str) -> Path:
    """The file of a job's last error; its first line is the message."""
    return folder / "errors" / f"{training}.txt"


def hours_of(missing: Sequence[SweepJob], records: Sequence[SweepRecord]) -> dict[str, float | None]:
    """By training hash, the hours of CPU time of the ``missing`` runs: the completions of each, at the most, at the
    time per completion of the finished runs of its setting in ``records``, evaluations included; of a setting without
    any at that of all of them; None where there are none."""
    rates: dict[str, list[float]] = {}
    for row in (row for record in records for row in record.rows()):
        if row["cpu_s"] and row["completions"]:
            rates.setdefault(row["setting"], []).append(row["cpu_s"] / row["completions"])
    everything = [rate for own in rates.values() for rate in own]
    return {
        job.training: job.completions * fmean(known) / 3600 if (known := rates.get(job.setting) or everything) else None
        for job in missing
    }


def cost_text(jobs: Sequence[SweepJob], hours: Mapping[str, float | None]) -> str:
    """``4 runs, 1.20 CPU-hours``; of runs that nobody has measured the number of completions."""
    known = [own for job in jobs if (own := hours[job.training]) is not None]
    unknown = [job.completions for job in jobs if hours[job.training] is None]
    parts = [number_of(len(jobs), "run")] + ([f"{sum(known):.2f} CPU-hours"] if known else [])
    if unknown:
        some = f"{len(unknown)} of them" if known else "of which none was measured yet"
        parts.append(f"{some}: at most {max(unknown):,.0f} completions each")
    return ", ".join(parts)
