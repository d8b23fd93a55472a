"""Cross-play: what each pair of policies scores, by seeds and by regimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..outcomes import Outcomes
from ..tables import Cells, markdown
from .pairs import Regime, cross_name, speakers
from .results import TableResults
from .teams import Cell, Place, speaking

MATRIX = "success by seed of the team (rows) and of the partner's run (columns)."
REGIMES = """success by whose policy the second agent has (rows) and whose the first has (columns): the mean over all
pairs of seeds with its 95 % interval over seeds and tasks; on the diagonal both of one run, then of different
seeds. "–" was not played.
"""
BY_REGIME, NOT_PLAYED = "by regime", "–"


@dataclass(frozen=True)
class Pairing:
    """The policies ``first`` and ``second`` of the two agents, each a setting and a seed, as one team."""

    part: str
    variant: str
    first: Place
    second: Place
    outcomes: Outcomes


def pairings(results: TableResults) -> Iterator[Pairing]:
    """Those that were played: runs that are teams of one regime, and cells of teams."""
    for cell, places in _cells(results):
        if places and cell.outcomes is not None:
            yield Pairing(cell.part, cell.variant, *places, cell.outcomes)


def csv_rows(results: TableResults) -> list[dict[str, Any]]:
    """One row per cell of each team, and per run that is a team of one regime, with the settings and seeds of the two
    agents' policies; these are empty where keys of the team exchange them."""
    return [_cell_row(cell, places) for cell, places in _cells(results)]


def _cells(results: TableResults) -> Iterator[tuple[Cell, tuple[Place, Place] | None]]:
    """The cells of teams, and the runs that are teams of one regime as cells of their setting, each with whose policies
    its two agents have."""
    for cell in results.cells:
        yield cell, speaking(cell, results.table.teams[cell.team])
    settings = {regime.second for regime in results.table.cross_play.values() if _is_one_setting(regime)}
    for run in (run for run in results.runs if run["setting"] in settings):
        outcomes = run["outcomes"].get("after") if run["status"] == "finished" else None
        place = (run["setting"], run["seed"])
        yield Cell(run["part"], run["setting"], run["variant"], run["seed"], run["seed"], outcomes), (place, place)


def _cell_row(cell: Cell, places: tuple[Place, Place] | None) -> dict[str, Any]:
    row = {key: value for key, value in vars(cell).items() if key != "outcomes"}
    (first, first_seed), (second, second_seed) = places or ((None, None), (None, None))
    row |= {"first": first, "first_seed": first_seed, "second": second, "second_seed": second_seed}
    return row | {"success": None if cell.outcomes is None else cell.outcomes.mean}


def matrices(results: TableResults) -> list[tuple[str, Cells]]:
    """(Title, cells): of each part and variant the matrix of regimes, then one of seeds per team of ``teams`` that is
    paired with several seeds."""
    return [*_of_regimes(results), *_of_seeds(results)]


def matrices_markdown(results: TableResults, head: str, figure: str = "") -> list[str]:
    """The section of a page; ``figure`` is the path of the drawing."""
    regimes = [text for title, cells in _of_regimes(results) for text in (f"{title}: {REGIMES}", markdown(*cells))]
    seeds = [text for title, cells in _of_seeds(results) for text in (f"{title}: {MATRIX}\n", markdown(*cells))]
    drawing = [f"![Cross-play by regimes and seeds]({figure})\n"] if figure and regimes else []
    return [f"{head}# Cross-play\n", *regimes, *drawing, *seeds] if regimes or seeds else []


def note_of(title: str) -> str:
    """What a matrix of :func:`matrices` shows."""
    return f"The {REGIMES if title.endswith(BY_REGIME) else MATRIX}"


def _of_regimes(results: TableResults) -> list[tuple[str, Cells]]:
    regimes, pages = results.table.cross_play, list[tuple[str, Cells]]()
    for part, variant in dict.fromkeys((row["part"], row["variant"]) for row in results.runs):
        lines = [[row, *(_texts(results, part, variant, row, column) for column in regimes)] for row in regimes]
        if any(text != NOT_PLAYED for line in lines for text in line[1:]):
            heads = ["second agent", *(f"first: {column}" for column in regimes)]
            title = ", ".join(word for word in (part, variant, BY_REGIME) if word)
            pages.append((title, (heads, lines)))
    return pages


def _texts(results: TableResults, part: str, variant: str, row: str, column: str) -> str:
    """The cell of the regimes ``row`` and ``column``."""
    regimes = results.table.cross_play
    second, first = regimes[row], regimes[column]
    own = _text(results, second.second, part, variant) if row == column and _is_one_setting(first) else ""
    team = _text(results, _team(results, row, column, first, second), part, variant)
    return "; ".join(filter(None, [own, own and team and f"other seeds {team}"])) or team or NOT_PLAYED


def _team(results: TableResults, row: str, column: str, first: Regime, second: Regime) -> str:
    """The name of the team in that cell: one of the table's own, or of the matrix."""
    if (name := cross_name(row, column)) in results.table.teams:
        return name
    own = (name for name, team in results.table.teams.items() if speakers(team) == (first.first, second.second))
    return next(own)


def _text(results: TableResults, name: str, part: str, variant: str) -> str:
    entry = results.estimate(name, part, variant)
    if entry["mean"] is None:
        return ""
    interval = "" if entry["low"] is None else f" ({entry['low']:.3f} to {entry['high']:.3f})"
    some = "" if entry["n"] == entry["of"] else f", {entry['n']} of {entry['of']} seeds"
    return f"{entry['mean']:.3f}{interval}{some}"


def _is_one_setting(regime: Regime) -> bool:
    """Whether a run of the regime is a team of both its policies."""
    return regime.pair and regime.first == regime.second


def _of_seeds(results: TableResults) -> list[tuple[str, Cells]]:
    table, pages = results.table, list[tuple[str, Cells]]()
    crossed = {cross_name(row, column) for row in table.cross_play for column in table.cross_play}
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in results.cells:
        if table.teams[cell.team].seeds != "same" and cell.outcomes is not None and cell.team not in crossed:
            groups.setdefault((cell.part, cell.variant, cell.team), []).append(cell)
    for (part, variant, team), cells in groups.items():
        success = {(cell.seed, cell.other_seed): cell.outcomes.mean for cell in cells if cell.outcomes is not None}
        rows, columns = sorted({own for own, _ in success}), sorted({other for _, other in success})
        own = {
            row["seed"]: row["after"] for row in results.runs if _is_of(row, part, variant, table.teams[team].setting)
        }
        whole = set(table.teams[team].agents.values()) == {table.teams[team].setting}
        lines = [
            [f"seed {seed}"]
            + [_share(own.get(seed) if whole and seed == other else success.get((seed, other))) for other in columns]
            for seed in rows
        ]
        title = ", ".join(word for word in (part, variant, team) if word)
        pages.append((title, (["", *(f"partner {other}" for other in columns)], lines)))
    return pages


def _is_of(row: Mapping[str, Any], part: str, variant: str, setting: str) -> bool:
    return (row["part"], row["variant"], row["setting"]) == (part, variant, setting)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
