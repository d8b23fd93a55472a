"""Cross-play: what the runs of a team score with partners of each seed."""

from __future__ import annotations

from .publication_results import TableResults
from .tables import Cells, spread

MATRIX = "success by seed of the team (rows) and of the partner's run (columns).\n"


def matrices(results: TableResults) -> list[tuple[str, Cells]]:
    """(Title, cells) of each part, variant and team that is paired with several seeds."""
    table, pages = results.table, list[tuple[str, Cells]]()
    groups: dict[tuple[str, str, str], dict[tuple[int, int], float]] = {}
    for cell in results.cells:
        if table.teams[cell.team].seeds != "same" and cell.outcomes is not None:
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
