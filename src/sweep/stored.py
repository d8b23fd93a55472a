"""Runs whose directories are gone: rows of committed summaries that answer the jobs of a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ..runs.files import RunDirectoryError
from ..runs.fingerprint import code_hash, evaluation_keys, nested, training_hash, training_keys
from .rows import SweepJob, TableRow, evaluation_difference
from .summary import packed_lines, unpacked_rows, why_unread


@dataclass(frozen=True)
class StoredRun:
    """A finished run as a ``row`` of the summary ``file``.  It answers a job and is stale as a run directory is
    (:class:`~troupe.runs.run.Run`), but no evaluation can be made of it any more: its weights are gone.

    ``adopted_by``: the training hash of a job that it answers though one of the two has keys that the other has not;
    ``keys`` says which."""

    row: TableRow
    file: Path
    adopted_by: str = ""
    keys: str = ""

    finished = True

    @property
    def path(self) -> Path:
        """Where the run was."""
        return Path(self.row["run"])

    @cached_property
    def config(self) -> dict[str, Any]:
        """What training and evaluation depend on."""
        return nested(self.row["config"])

    @cached_property
    def training_hash(self) -> str:
        return self.adopted_by or training_hash(self.config)

    @property
    def code(self) -> str:
        return str(self.row["code"])

    def stale(self, evaluation: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """As :meth:`troupe.runs.run.Run.stale`; also "configuration", where a job of other keys adopted it."""
        differs = evaluation is not None and evaluation_keys(self.config) != evaluation
        code = self.code != code_hash(self.config)
        reasons = {"configuration": bool(self.keys), "code": code, "evaluation": differs}
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
        notes += [self.keys] if self.keys else []
        own = {"setting": job.setting, "variant": job.variant, "seed": job.seed, "training": job.training}
        own |= {"status": "finished", "stale": " and ".join(stale), "note": "; ".join(notes)}
        return self.row | own | {"overrides": " ".join(job.overrides)}


def adopted(
    jobs: Sequence[SweepJob], configs: Mapping[str, Mapping[str, Any]], runs: Sequence[StoredRun]
) -> dict[str, tuple[str, str]]:
    """Of jobs that none of ``runs`` answers, by training hash: the hash of the run that has the same setting, variant,
    seed and overrides, and the same value of every training key that both have; and the other keys in words.

    Such keys came or went with a change of the code, which the run is too old or too new for: it is stale, like one of
    other code.  ``configs`` are the jobs' configurations, by training hash.
    """
    answered = {run.training_hash for run in runs}
    result = {}
    for job in (job for job in jobs if job.training not in answered):
        keys, place = training_keys(configs[job.training]), (job.setting, job.variant, job.seed)
        for run in runs:
            own, row = training_keys(run.config), run.row
            same = (row["setting"], row["variant"], row["seed"]) == place
            same = same and row["overrides"] == " ".join(job.overrides)
            if same and all(own[key] == keys[key] for key in own.keys() & keys.keys()):
                result[job.training] = run.training_hash, _differing(own.keys(), keys.keys())
    return result


def _differing(own: Set[str], asked: Set[str]) -> str:
    parts = {"trained without the keys": asked - own, "trained with the keys": own - asked}
    return "; ".join(f"{what} {', '.join(sorted(keys))}" for what, keys in parts.items() if keys)


def stored_runs(file: Path) -> list[StoredRun]:
    """The finished runs of a summary of a sweep or of a table (``summary.jsonl``).

    Raises :class:`~troupe.runs.files.RunDirectoryError` naming a file that is none, and one whose rows do not hold the
    configuration of their runs, so that nobody knows what they answer.
    """
    try:
        now = file.stat()
        return list(_runs_of(file.resolve(), file, (now.st_ino, now.st_mtime_ns, now.st_size)))
    except RunDirectoryError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"finished={file} is no summary of a sweep or a table: {why_unread(error)}") from error


@lru_cache(maxsize=64)
def _runs_of(_place: Path, file: Path, _state: tuple[int, ...]) -> tuple[StoredRun, ...]:
    """Kept while the file stays as it is, with the hashes of the configurations: every part of every table asks for
    them.  Nobody changes their rows."""
    head, *lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    rows = unpacked_rows(head, packed_lines(head, lines))
    finished = [row for row in rows if row["status"] == "finished"]
    if any(not row.get("config") for row in finished):
        raise RunDirectoryError(
            f"finished={file}: its rows have no configuration, by which they would be known; an older version of "
            "Troupe wrote it"
        )
    return tuple(StoredRun(row, file) for row in finished)


def stored_cells(file: Path) -> list[dict[str, Any]]:
    """The packed cells of teams in a table's summary that :func:`stored_runs` reads."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line["cell"] for line in lines if "cell" in line]
