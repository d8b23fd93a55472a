"""Cross-play: what each pair of policies scores, by seeds and by regimes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .outcomes import Outcomes
from .publication_file import CrossRegime, cross_name
from .publication_results import TableResults
from .tables import Cells, spread
from .teams import Cell, Place, speaking

MATRIX = "success by seed of the team (rows) and of the partner's run (columns).\n"
REGIMES = """success by whose policy the second agent has (rows) and whose the first has (columns): the mean over all
pairs of seeds with its 95 % interval over seeds and tasks; on the diagonal both of one run, then of different
seeds. "–" was not played.
"""
NOT_PLAYED = "–"


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


def matrices(results: TableResults) -> list[tuple[str, str, Cells]]:
    """(Title, note, cells): of each part and variant the matrix of regimes, then one of seeds per team of ``teams``
    that is paired with several seeds."""
    regimes = [(title, REGIMES, cells) for title, cells in _of_regimes(results)]
    return [*regimes, *((title, MATRIX, cells) for title, cells in _of_seeds(results))]


def _of_regimes(results: TableResults) -> list[tuple[str, Cells]]:
    regimes, pages = results.table.cross_play, list[tuple[str, Cells]]()
    for part, variant in dict.fromkeys((row["part"], row["variant"]) for row in results.runs):
        lines = [[row, *(_texts(results, part, variant, row, column) for column in regimes)] for row in regimes]
        if any(text != NOT_PLAYED for line in lines for text in line[1:]):
            heads = ["second agent", *(f"first: {column}" for column in regimes)]
            title = ", ".join(word for word in (part, variant, "by regime") if word)
            pages.append((title, (heads, lines)))
    return pages


def _texts(results: TableResults, part: str, variant: str, row: str, column: str) -> str:
    """The cell of the regimes ``row`` and ``column``."""
    regimes = results.table.cross_play
    second, first = regimes[row], regimes[column]
    own = _text(results, second.second, part, variant) if row == column and _is_one_setting(first) else ""
    team = _text(results, _team(results, row, column, first, second), part, variant)
    return "; ".join(filter(None, [own, own and team and f"other seeds {team}"])) or team or NOT_PLAYED


def _team(results: TableResults, row: str, column: str, first: CrossRegime, second: CrossRegime) -> str:
    """The name of the team in that cell: one of the table's own, or of the matrix."""
    if (name := cross_name(row, column)) in results.table.teams:
        return name
    own = (name for name, team in results.table.teams.items() if team.speakers == (first.first, second.second))
    return next(own)


def _text(results: TableResults, name: str, part: str, variant: str) -> str:
    entry = results.estimate(name, part, variant)
    some = f", {entry['n']} of {entry['of']} seeds" if 0 < entry["n"] < entry["of"] else ""
    return spread(entry["mean"], entry["low"], entry["high"]) + some


def _is_one_setting(regime: CrossRegime) -> bool:
    """Whether a run of the regime is a team of both its policies."""
    return regime.pair and regime.first == regime.second


def _of_seeds(results: TableResults) -> list[tuple[str, Cells]]:
    table, pages = results.table, list[tuple[str, Cells]]()
    crossed = {cross_name(row, column) for row in table.cross_play for column in table.cross_play}
    groups: dict[tuple[str, str, str], dict[tuple[int, int], float]] = {}
    for cell in results.cells:
        if table.teams[cell.team].seeds != "same" and cell.outcomes is not None and cell.team not in crossed:
            own = groups.setdefault((cell.part, cell.variant, cell.team), {})
            own[cell.seed, cell.other_seed] = cell.outcomes.mean
    for (part, variant, name), success in groups.items():
        team = table.teams[name]
        if set(team.settings) == {team.setting}:  # a seed beside itself is the run
            place = (part, variant, team.setting)
            runs = (run for run in results.runs if (run["part"], run["variant"], run["setting"]) == place)
            success |= {(run["seed"], run["seed"]): run["after"] for run in runs}
        rows, columns = ({pair[side] for pair in success} for side in (0, 1))
        lines = [
            [f"seed {seed}", *(spread(success.get((seed, other)), None, None) for other in sorted(columns))]
            for seed in sorted(rows)
        ]
        title = ", ".join(word for word in (part, variant, name) if word)
        pages.append((title, (["", *(f"partner {other}" for other in sorted(columns))], lines)))
    return pages
