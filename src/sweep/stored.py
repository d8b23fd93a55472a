"""Runs whose directories are gone: rows of committed summaries that answer the jobs of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ..runs.files import RunDirectoryError
from ..runs.fingerprint import code_hash, evaluation_keys, nested, training_hash
from ..runs.older import with_current_config
from .rows import SweepJob, TableRow, evaluation_difference
from .summary import naming, read_summary


@dataclass(frozen=True)
class StoredRun:
    """A finished run as a ``row`` of the summary ``file``.  It answers a job and is stale as a run directory is
    (:class:`~troupe.runs.run.RunReader`), but no evaluation can be made of it any more: its weights are gone.
    """

    row: TableRow
    file: Path

    finished = True

    @property
    def path(self) -> Path:
        """Where the run was."""
        return Path(self.row["run"])

    @cached_property
    def config(self) -> dict[str, Any]:
        """What training and evaluation depend on, as :attr:`troupe.runs.run.RunReader.config` has it."""
        return with_current_config(nested(self.row["config"]))

    @cached_property
    def training_hash(self) -> str:
        return training_hash(self.config)

    @property
    def code(self) -> str:
        return str(self.row["code"])

    def stale(self, evaluation: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """As :meth:`troupe.runs.run.RunReader.stale`."""
        differs = evaluation is not None and evaluation_keys(self.config) != evaluation
        reasons = {"code": self.code != code_hash(self.config), "evaluation": differs}
        return tuple(reason for reason, holds in reasons.items() if holds)

    def missing(self, evaluations: Sequence[str], sealed: int | None) -> list[str]:
        """Those of ``evaluations`` that the row does not have; ``sealed`` is the seed of the sealed tasks."""
        absent = (name for name in evaluations if self.row.get(name) is None)
        other = "sealed" in evaluations and self.row.get("sealed_seed") != sealed
        return [*dict.fromkeys([*absent, *(["sealed"] if other else [])])]

    def answer(self, job: SweepJob, evaluations: Sequence[str], sealed: int | None) -> TableRow:
        """The row of ``job``; its note says what was not evaluated, and cannot be."""
        stale, missing = self.stale(job.evaluation), self.missing(evaluations, sealed)
        notes = [f"not evaluated: {', '.join(missing)} (the run directory is gone)"] if missing else []
        notes += [evaluation_difference(job, self.config)] if "evaluation" in stale else []
        own = {"setting": job.setting, "variant": job.variant, "seed": job.seed, "training": job.training}
        own |= {"status": "finished", "stale": " and ".join(stale), "note": "; ".join(notes)}
        return self.row | own | {"overrides": " ".join(job.overrides)}


def stored_runs(file: Path) -> list[StoredRun]:
    """The finished runs of a summary of a sweep or of a table (``summary.jsonl``).

    Raises :class:`~troupe.runs.files.RunDirectoryError` naming a file that is none, and one whose rows do not hold the
    configuration of their runs, so that nobody knows what they answer.
    """
    with naming(file):
        now = file.stat()
    return list(_runs_of(file.resolve(), file, (now.st_ino, now.st_mtime_ns, now.st_size)))


@lru_cache(maxsize=64)
def _runs_of(_place: Path, file: Path, _state: tuple[int, ...]) -> tuple[StoredRun, ...]:
    """Kept while the file stays as it is, with the hashes of the configurations: every part of every table asks for
    them.  Nobody changes their rows."""
    _, rows, _ = read_summary(file)
    finished = [row for row in rows if row["status"] == "finished"]
    if any(not row.get("config") for row in finished):
        raise RunDirectoryError(
            f"finished={file}: its rows have no configuration, by which they would be known; an older version of "
            "Troupe wrote it"
        )
    return tuple(StoredRun(row, file) for row in finished)


def stored_cells(file: Path) -> list[dict[str, Any]]:
    """The packed cells of teams in a table's summary that :func:`stored_runs` reads."""
    return read_summary(file)[2]
