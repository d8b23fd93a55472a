"""A sweep as its page shows it: the runs of each setting, also those that go on, and its tables as cells.

Unlike the sweep's own tables it is made of what is there: a damaged run is named and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..runs.index import is_run, readable_runs
from ..runs.plain_table import PlainTable
from .readings import with_readings
from .record import SweepRecord
from .rows import SweepJob, TableRow, aggregate
from .tables import budgets_line, readings_cells, settings_cells, tests_text, verdicts_cells
from .verdicts import judge


@dataclass(frozen=True)
class SweepOverview:
    """``settings``: of each setting and variant the folders of its runs, one per seed, finished or not.  ``problems``:
    sentences about jobs without a finished run, and about runs that cannot be read."""

    name: str
    question: str
    settings: dict[str, list[Path]]
    tables: Sequence[PlainTable]
    problems: Sequence[str]

    @classmethod
    def of(cls, folder: Path) -> SweepOverview:
        """Raises :class:`~troupe.runs.files.RunDirectoryError` where ``folder`` holds no sweep."""
        record = SweepRecord.read(folder)
        runs, problems = readable_runs(record.runs)
        settings: dict[str, list[Path]] = {}
        rows = record.rows(runs)
        for job, row in zip(record.jobs, rows, strict=True):
            begun = [run for run in runs if run.training_hash == job.training]
            newest = max(begun, key=lambda run: run.path.name).path if begun else None
            path = newest if row["run"] is None or not is_run(Path(row["run"])) else Path(row["run"])
            settings.setdefault(f"{job.setting} {job.variant}".strip(), []).extend([path] if path else [])
            if row["status"] != "finished":
                problems.append(_sentence(job, row, begun=path is not None))
        tables = _tables(record, rows)
        return cls(record.name, record.question, {n: paths for n, paths in settings.items() if paths}, tables, problems)


def _sentence(job: SweepJob, row: TableRow, begun: bool) -> str:
    what = {"failed": "failed", "missing": "is not finished" if begun else "is missing"}[row["status"]]
    variant = f" {job.variant}" if job.variant else ""
    note = f": {row['note']}" if row["note"] else ""
    return f"The run of setting {job.setting}{variant}, seed {job.seed}, {what}{note}."


def _tables(record: SweepRecord, rows: Sequence[TableRow]) -> list[PlainTable]:
    rows, budgets = with_readings(rows, record.threshold)
    settings, verdicts = aggregate(rows), judge(record.claims, rows)
    note = tests_text(verdicts).replace("`", "")
    tables = [PlainTable("Verdicts", *verdicts_cells(verdicts), note=note)] if verdicts else []
    legend = "Success on held-out tasks: the mean over seeds with its 95 % interval over seeds and tasks."
    tables.append(PlainTable("Settings of the sweep", *settings_cells(settings), note=legend))
    if budgets:
        cells = readings_cells(settings, record.threshold)
        tables.append(PlainTable("At equal budgets", *cells, note=budgets_line(budgets).replace("`", "")))
    return tables
