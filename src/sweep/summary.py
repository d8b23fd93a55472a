"""What the tables of a sweep are made of, as one file that is small enough to be committed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import visible
from ..runs.files import RunDirectoryError
from .curve import Point
from .outcomes import Outcomes
from .rows import TableRow
from .verdicts import Claim

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
        head = {"sweep": self.name, "question": self.question, "threshold": self.threshold, "verdicts": claims}
        lines = packed_rows(self.rows)
        return "".join(json.dumps(line) + "\n" for line in [head | {"config": shared_config(self.rows)}, *lines])

    @classmethod
    def read(cls, file: Path) -> SweepSummary:
        """Raises :class:`~troupe.runs.files.RunDirectoryError` naming a file that :meth:`text` did not make."""
        try:
            head, *lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
            claims = tuple(Claim(**claim) for claim in head["verdicts"])
            rows = tuple(unpacked_rows(head, lines))
            return cls(head["sweep"], head["question"], claims, head["threshold"], rows)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunDirectoryError(f"{file} is no summary of a sweep: {why_unread(error)}") from error


def why_unread(error: Exception) -> str:
    """Why a file cannot be read, for the end of one line: a ``UnicodeDecodeError`` would show all of its bytes."""
    return visible(error if isinstance(error, UnicodeError) else repr(error))[:MOST]


def shared_config(rows: Sequence[TableRow]) -> dict[str, Any]:
    """The leaves that the configurations of all finished rows share; they are written once."""
    configs = [row["config"] for row in rows if row.get("config")]
    first = configs[0] if configs else {}
    return {key: value for key, value in first.items() if all(_has(config, key, value) for config in configs)}


def packed_rows(rows: Sequence[TableRow]) -> list[dict[str, Any]]:
    """For JSON; of each configuration the leaves that are not shared."""
    shared = shared_config(rows)
    return [_packed(row) | {"config": _without(row.get("config", {}), shared)} for row in rows]


def unpacked_rows(head: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> list[TableRow]:
    """What :func:`packed_rows` was given; ``head`` is the first line of the file.

    Rows that a version without configurations wrote have none.  Raises ``KeyError``, ``TypeError`` and ``ValueError``.
    """
    rows = []
    for line in lines:
        outcomes = {name: Outcomes.unpacked(each) for name, each in line["outcomes"].items()}
        curve = [Point.unpacked(point) for point in line.get("curve", ())]
        own = line.get("config")
        config = {**head["config"], **own} if own is not None and line["run"] is not None else {}
        rows.append({**line, "outcomes": outcomes, "curve": curve, "config": config})
    return rows


def packed_lines(head: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The packed rows of a sweep's file, or of a table's, in which they lie beside cells."""
    return [line["run"] for line in lines if "run" in line] if "table" in head else list(lines)


def _packed(row: TableRow) -> dict[str, Any]:
    outcomes = {name: each.packed() for name, each in row["outcomes"].items()}
    return row | {"outcomes": outcomes, "curve": [point.packed() for point in row.get("curve", ())]}


def _has(config: Mapping[str, Any], key: str, value: object) -> bool:
    return key in config and config[key] == value and type(config[key]) is type(value)


def _without(config: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in shared}
