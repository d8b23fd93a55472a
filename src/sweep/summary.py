"""What the tables of a sweep are made of, as one file that is small enough to be committed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..runs.files import RunDirectoryError
from .curve import Point
from .outcomes import Outcomes
from .rows import TableRow
from .verdicts import Claim


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
        return "".join(json.dumps(line) + "\n" for line in [head, *map(_packed, self.rows)])

    @classmethod
    def read(cls, file: Path) -> SweepSummary:
        """Raises :class:`~troupe.runs.files.RunDirectoryError` naming a file that :meth:`text` did not make."""
        try:
            head, *rows = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
            claims = tuple(Claim(**claim) for claim in head["verdicts"])
            return cls(head["sweep"], head["question"], claims, head["threshold"], tuple(map(_unpacked, rows)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(f"{file} is no summary of a sweep: {error!r}") from error


def _packed(row: TableRow) -> dict[str, Any]:
    outcomes = {name: each.packed() for name, each in row["outcomes"].items()}
    return row | {"outcomes": outcomes, "curve": [point.packed() for point in row["curve"]]}


def _unpacked(row: dict[str, Any]) -> TableRow:
    outcomes = {name: Outcomes.unpacked(each) for name, each in row["outcomes"].items()}
    return row | {"outcomes": outcomes, "curve": [Point.unpacked(point) for point in row["curve"]]}
