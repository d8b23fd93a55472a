"""Cross-play: what each pair of policies scores, by seeds and by regimes."""

from __future__ import annotations

from .publication_file import CrossRegime, cross_name
from .publication_results import TableResults
from .tables import Cells, spread

MATRIX = "success by seed of the team (rows) and of the partner's run (columns).\n"
REGIMES = """success by whose policy the second agent has (rows) and whose the first has (columns): the mean over all
pairs of seeds with its 95 % interval over seeds and tasks; on the diagonal both of one run, then of different
seeds. "–" was not played.
"""
NOT_PLAYED = "–"


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
