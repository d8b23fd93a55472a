"""What the tables of a sweep are made of, as one file that is small enough to be committed; its rows answer the jobs of
a plan whose run directories are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ..errors import visible
from ..runs.bounded import json_lines
from ..runs.files import RunDirectoryError
from ..runs.fingerprint import code_hash, evaluation_keys, nested, training_hash
from ..runs.older import with_current_config
from .claims import Claim
from .outcomes import Outcomes, Point
from .rows import SweepJob, TableRow, evaluation_difference

MOST = 300
"""Characters of an error about a file's content."""


@dataclass(frozen=True)
class SweepSummary:
    """A sweep's question and claims, and the row of each of its runs: configuration, hashes of training and code,
    figures, results by task, learning curve (:func:`.rows.row_of`).
    """

    name: str
    question: str
    claims: tuple[Claim, ...]
    threshold: float | None
    rows: tuple[TableRow, ...]

    def text(self) -> str:
        """JSON lines: the sweep, then its runs."""
        claims = [asdict(claim) for claim in self.claims]
        return lines_of(
            {"sweep": self.name, "question": self.question, "threshold": self.threshold, "verdicts": claims}, self.rows
        )

    @classmethod
    def read(cls, file: Path) -> SweepSummary:
        """Raises :class:`~troupe.runs.files.RunDirectoryError` naming a file that :meth:`text` did not make."""
        with naming(file):
            head, rows, _ = read_summary(file)
            claims = tuple(Claim(**claim) for claim in head["verdicts"])
            return cls(head["sweep"], head["question"], claims, head["threshold"], tuple(rows))


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """A context in which an error about what is in ``file`` is a :class:`~troupe.runs.files.RunDirectoryError`."""
    try:
        yield
    except RunDirectoryError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"{file} is no summary of a sweep or a table: {why_unread(error)}") from error


def table_of(file: Path) -> tuple[str | None, str | None]:
    """The table and the scale that the summary ``file`` is of; None of a sweep."""
    with naming(file), file.open(encoding="utf-8") as lines:
        head = json.loads(lines.readline())
        return head.get("table"), head.get("scale")


def lines_of(head: Mapping[str, Any], rows: Sequence[TableRow], cells: Sequence[Mapping[str, Any]] = ()) -> str:
    """JSON lines: a ``head``, the ``rows`` of runs, of a table those of its ``cells`` of teams.  Of each configuration
    the leaves that all share are in the head."""
    configs = [row["config"] for row in rows if row.get("config")]
    first = configs[0] if configs else {}
    shared = {key: value for key, value in first.items() if all(_has(config, key, value) for config in configs)}
    lines: list[Mapping[str, Any]] = [{**head, "config": shared}]
    for row in rows:
        packed: TableRow = {"outcomes": {name: each.packed() for name, each in row["outcomes"].items()}}
        packed["curve"] = [point.packed() for point in row.get("curve", ())]
        packed["config"] = {key: value for key, value in row.get("config", {}).items() if key not in shared}
        lines.append({"run": row | packed} if "table" in head else row | packed)
    return "".join(json.dumps(line) + "\n" for line in [*lines, *({"cell": cell} for cell in cells)])


def read_summary(file: Path) -> tuple[dict[str, Any], list[TableRow], list[dict[str, Any]]]:
    """What :func:`lines_of` was given.  Rows that a version without configurations wrote have none.

    Raises :class:`~troupe.runs.files.RunDirectoryError` naming a ``file`` that is none.
    """
    with naming(file):
        place = file.resolve()
        head, *lines = json_lines(place.parent, place.name)
        rows = []
        for line in [line["run"] for line in lines if "run" in line] if "table" in head else lines:
            outcomes = {name: Outcomes.unpacked(each) for name, each in line["outcomes"].items()}
            curve = [Point.unpacked(point) for point in line.get("curve", ())]
            own = line.get("config")
            config = {**head["config"], **own} if own is not None and line["run"] is not None else {}
            rows.append({**line, "outcomes": outcomes, "curve": curve, "config": config})
        return head, rows, [line["cell"] for line in lines if "cell" in line]


def why_unread(error: Exception) -> str:
    """Why a file cannot be read, for the end of one line: a ``UnicodeDecodeError`` would show all of its bytes."""
    return visible(error if isinstance(error, UnicodeError) else repr(error))[:MOST]


def _has(config: Mapping[str, Any], key: str, value: object) -> bool:
    return key in config and config[key] == value and type(config[key]) is type(value)


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
