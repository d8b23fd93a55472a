"""Sweeps as their pages and notebooks show them: the runs of each setting, also those that go on, and tables as cells.

Unlike the files of a sweep they are made of what is there: a damaged run is named and left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ..runs.files import SWEEP
from ..runs.index import is_run, readable_runs
from ..runs.tables import PlainTable, data_frame, html_table
from .outcomes import with_readings
from .page import sweep_tables
from .record import SweepRecord
from .rows import NESTED, SweepJob, TableRow, aggregate
from .verdicts import judge

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Overview:
    """``settings``: of each setting and variant of a sweep the folders of its runs, one per seed, finished or not.
    ``problems``: sentences about what is missing, and about runs that cannot be read."""

    name: str
    question: str
    settings: Mapping[str, Sequence[Path]]
    tables: Sequence[PlainTable]
    problems: Sequence[str]

    @classmethod
    def of_sweep(cls, folder: Path) -> Overview:
        """Raises :class:`~troupe.runs.files.RunDirectoryError` where ``folder`` holds no sweep."""
        record = SweepRecord.read(folder)
        runs, problems = readable_runs(record.runs)
        settings: dict[str, list[Path]] = {}
        rows = record.rows(runs)
        for job, row in zip(record.jobs, rows, strict=True):
            begun = [run for run in runs if run.training_hash == job.training]
            newest = max(begun, key=lambda run: run.path.name).path if begun else None
            path = newest if row["run"] is None or not is_run(Path(row["run"])) else Path(row["run"])
            if path is not None:
                settings.setdefault(f"{job.setting} {job.variant}".strip(), []).append(path)
            if row["status"] != "finished":
                problems.append(_sentence(job, row, begun=path is not None))
        return cls(record.name, record.question, settings, _tables(record, rows), problems)


class Sweep:
    """The folder of a sweep, also while it goes on, for notebooks; it is read when it is first asked for, and once::

        sweep = Sweep("runs/sweeps/seeds/sokoban_specialized")
        sweep.settings[["setting", "after_mean", "after_low", "after_high"]]

    Raises :class:`~troupe.runs.files.RunDirectoryError` where ``path`` holds no sweep; the tables raise
    :class:`~troupe.errors.AbsentError` where pandas is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.record = Path(path), SweepRecord.read(Path(path))

    def __repr__(self) -> str:
        return f"Sweep({str(self.path)!r})"

    def _repr_html_(self) -> str:
        """Its question and tables, for a notebook."""
        tables = (html_table(each.heads, each.lines, each.title) for each in _tables(self.record, self._rows))
        return "".join([f"<p>{escape(self.record.question)}</p>", *tables])

    @cached_property
    def _rows(self) -> list[TableRow]:
        return with_readings(self.record.rows(), self.record.threshold)[0]

    @property
    def runs(self) -> DataFrame:
        """One row per run of the plan, finished or not, as in ``runs.csv``."""
        return data_frame("Sweep.runs", self._rows).drop(columns=list(NESTED))

    @property
    def settings(self) -> DataFrame:
        """One row per setting, as in ``settings.csv``: :func:`.aggregate` says what its columns are."""
        return data_frame("Sweep.settings", aggregate(self._rows))

    @property
    def verdicts(self) -> DataFrame:
        """One row per claim of the sweep, as in ``verdicts.csv``."""
        return data_frame("Sweep.verdicts", judge(self.record.claims, self._rows))


def parts_of(folder: Path) -> list[Path]:
    """The folders of the sweeps of the table in ``folder``, `runs/reproduce/TABLE/SCALE`; none of another folder."""
    return sorted(file.parent for file in folder.glob(f"parts/*/{SWEEP}"))


def _sentence(job: SweepJob, row: TableRow, begun: bool) -> str:
    what = {"failed": "failed", "missing": "is not finished" if begun else "is missing"}[row["status"]]
    variant = f" {job.variant}" if job.variant else ""
    note = f": {row['note']}" if row["note"] else ""
    return f"The run of setting {job.setting}{variant}, seed {job.seed}, {what}{note}."


def _tables(record: SweepRecord, rows: Sequence[TableRow]) -> list[PlainTable]:
    """Those of the sweep's page; notes are no Markdown here."""
    tables = sweep_tables(rows, record.claims, record.threshold)
    return [replace(table, note=table.note.replace("`", "").replace("*", "")) for table in tables]
