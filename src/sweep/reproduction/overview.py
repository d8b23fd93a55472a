"""A reproduced table as its page shows it: the sweeps of its parts, its results and verdicts, its plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...runs.files import RunDirectoryError
from ...runs.plain_table import PlainTable
from .cross_play import matrices, note_of
from .figure import STYLE, figure_of
from .heat_map import STYLE as HEAT_STYLE
from .heat_map import heat_map_of
from .page import READ, WORDS, estimates_cells, needed, verdicts_cells
from .results import TableResults

SUMMARY = "summary.jsonl"


@dataclass(frozen=True)
class TableOverview:
    """``parts``: the folders of its sweeps.  ``tables`` and ``plots`` (by title, SVG without styles of their own) are
    those of the last time that `troupe reproduce` ended; ``problems`` say where they are missing."""

    name: str
    question: str
    parts: Sequence[Path]
    tables: Sequence[PlainTable] = ()
    plots: Mapping[str, str] = field(default_factory=dict)
    problems: Sequence[str] = ()

    @classmethod
    def of(cls, folder: Path) -> TableOverview:
        parts, file = parts_of(folder), folder / SUMMARY
        name = f"{folder.parent.name}, {folder.name}"
        if not file.is_file():
            missing = f"{file} is missing: the table has not ended yet, or was killed. The same command writes it."
            return cls(name, "", parts, problems=[missing])
        try:
            results = TableResults.read(file)
        except RunDirectoryError as error:
            return cls(name, "", parts, problems=[f"{error}. The table's own results are left out."])
        table, verdicts = results.table, results.verdicts()
        unit = "per cent" if table.unit == "%" else table.unit
        words = WORDS.replace("`", "").replace("*", "")
        tables = [
            PlainTable("Results beside the paper's", *estimates_cells(results.estimates()), READ.format(unit=unit)),
            PlainTable("Claims", *verdicts_cells(verdicts), f"{words}{needed(verdicts)}"),
        ]
        tables += [PlainTable(f"Cross-play, {title}", *cells, note_of(title)) for title, cells in matrices(results)]
        plots = {"Ours beside the paper's": figure_of(results).replace(f"{STYLE}\n", "")}
        plots |= {"Cross-play by regimes and seeds": heat_map_of(results).replace(f"{HEAT_STYLE}\n", "")}
        name, shown = f"{table.title}, {results.scale}", [one for one in tables if one.lines]
        return cls(name, table.question, parts, shown, {title: plot for title, plot in plots.items() if plot})


def parts_of(folder: Path) -> list[Path]:
    """The folders of the sweeps of the table in ``folder``, `runs/reproduce/TABLE/SCALE`; none of another folder."""
    return sorted(file.parent for file in folder.glob("parts/*/sweep.json"))
