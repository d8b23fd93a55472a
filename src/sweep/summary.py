"""What the tables of a sweep are made of, as one file that is small enough to be committed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import visible
from ..runs.bounded import json_lines
from ..runs.files import RunDirectoryError
from .claims import Claim
from .curve import Point
from .outcomes import Outcomes
from .rows import TableRow

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
