"""A table's results as Markdown and CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import t

from ..measures import MEASURES
from ..tables import Cells, codes_line, csv_text, markdown, without_empty, write_or_remove
from ..verdicts import LEVEL
from .cross_play import csv_rows, matrices_markdown
from .figure import figure_of
from .heat_map import heat_map_of
from .pairs import cross_name
from .results import ABSENT, APPEARS, UNDECIDED, UNTESTED, TableResults, counted
from .table import SILENT, ReproductionTable

READ = """Ours: the mean over seeds with its 95 % interval (success: over seeds and tasks, docs/experiments.md; other
figures: over seeds). The paper's figures are in {unit}, of other models and tasks than ours, from transcriptions that
were not compared with the paper itself; they have no seeds and no intervals.
"""
WORDS = f"""Verdicts, by thresholds that were fixed in the table's configuration before the runs: *{APPEARS}*: the mean
difference reaches the threshold, and is surely above its second figure. *{ABSENT}*: the difference is surely too small.
*{UNDECIDED}*: neither is sure. *{UNTESTED}*: nothing was compared. *Surely*: with a p of at most 0.05 after Holm's
correction for all tests of the table (two per claim). `p, Holm` belongs to the hypothesis that the difference is not
above the second figure.
"""
SEEDS = {"same": "of the same seed", "others": "of each other seed", "all": "of each seed"}
"""Of a team's partners, in words."""


def write_results(results: TableResults, folder: Path) -> str:
    """Write ``table.md``, ``table.csv``, ``verdicts.csv``, ``cross_play.csv``, ``cross_play.svg``, ``plot.svg`` and
    ``summary.jsonl``, each where there is anything for it, and remove an earlier one where there is not.

    Returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    page = page_of(results, "plot.svg", matrix="cross_play.svg")
    files = {"table.md": page, "summary.jsonl": results.text(), "table.csv": csv_text(_flat(results.estimates()))}
    files |= {"verdicts.csv": csv_text(results.verdicts())}
    files |= {"cross_play.csv": csv_text(csv_rows(results)), "cross_play.svg": heat_map_of(results)}
    files |= {"plot.svg": figure_of(results)}
    write_or_remove(folder, files)
    return page


def page_of(results: TableResults, figure: str = "", level: int = 1, matrix: str = "") -> str:
    """The page; ``figure`` is the path of the plot, ``matrix`` that of cross-play's; ``level`` of its headings."""
    table, head = results.table, "#" * level
    estimates, verdicts = results.estimates(), results.verdicts()
    plot = f"![{table.title}: ours beside the paper's]({figure})\n" if figure and figure_of(results) else ""
    parts = [
        f"{head} {table.title}\n",
        f"{table.question} Publication: {table.publication}. Table `{table.name}`, {_scope(results)}.\n",
        f"{head}# Results\n",
        markdown(*estimates_cells(estimates)),
        READ.format(unit="per cent" if table.unit == "%" else table.unit),
        plot,
        f"{head}# Claims\n",
        markdown(*verdicts_cells(verdicts, strong="**")),
        f"{_sentence(verdicts)}\n\n{WORDS}{needed(verdicts)}",
        *matrices_markdown(results, head, matrix),
        f"{head}# Settings\n",
        settings_table(table),
        *(f"{note}\n" for note in table.notes),
        codes_line(results.runs),
        _cost(results),
    ]
    return "\n".join(part for part in parts if part)


def estimates_cells(entries: Sequence[Mapping[str, Any]]) -> Cells:
    """One line per row of the table and part."""
    heads = ["part", "variant", "row", "figure", "ours", "seeds", "the paper's", "section"]
    lines = [
        [
            *(entry[key] for key in ("part", "variant", "row")),
            *(_figure(entry), _ours(entry), _seeds(entry), _published(entry), entry["section"]),
        ]
        for entry in entries
    ]
    return without_empty(heads, lines)


def verdicts_cells(verdicts: Sequence[Mapping[str, Any]], strong: str = "") -> Cells:
    """One line per claim, part and variant; the verdict between two ``strong``."""
    heads = ["claim", "part", "variant", "the paper's", "threshold", "difference", "seeds", "p, Holm", "verdict", "why"]
    lines = [
        [
            *(row[key] for key in ("claim", "part", "variant", "paper", "threshold")),
            *(_difference(row), str(row["n"] or ""), "" if row["p_above"] is None else f"{row['p_above']:.3g}"),
            *(f"{strong}{row['verdict']}{strong}", row["why"]),
        ]
        for row in verdicts
    ]
    return without_empty(heads, lines)


def needed(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """How large a difference the first decision of a table takes, by its numbers of seeds and tests; "" where nothing
    is tested."""
    tested = [row for row in verdicts if row["p_above"] is not None]
    if not tested:
        return ""
    tests, seeds = 2 * len(tested), max(row["n"] for row in tested)
    errors = float(t.isf(LEVEL / tests, seeds - 1))
    return (
        f"With {seeds} seeds and {tests} tests, the first decision takes a difference of "
        f"{errors:.{0 if errors >= 10 else 1}f} standard errors beyond the figure that it is tested against.\n"
    )


def settings_table(table: ReproductionTable) -> str:
    """One line per setting and team: its overrides, and what the publication has on it."""
    lines = [[name, _code(overrides), table.sections[name]] for name, overrides in table.settings.items()]
    crossed = {cross_name(row, column) for row in table.cross_play for column in table.cross_play}
    for name, team in ((name, team) for name, team in table.teams.items() if name not in crossed):
        partners = [
            f"its {agent.strip('<>')} agent with the policy of *{setting}* ({SEEDS[team.seeds]})"
            for agent, setting in team.agents.items()
        ]
        words = [f"finished runs of *{team.setting}*", *partners, _code(team.keys)]
        lines.append([name, "; ".join(word for word in words if word), table.sections[name]])
    if table.cross_play:
        each = f"the second agent's policy of one, the first agent's of any of {', '.join(table.cross_play)}"
        lines.append(["cross-play by regime", each, SILENT])
    return markdown(["setting", "overrides", "publication"], lines)


def _flat(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**entry, "paper": _published(entry)} for entry in entries]


def _published(entry: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in entry["paper"].items())


def _scope(results: TableResults) -> str:
    words = f", with other overrides than the table's: `{' '.join(results.words)}`" if results.words else ""
    seeds = ", ".join(map(str, results.seeds))
    return f"scale `{results.scale}`, {seeds_of(results)} ({seeds}){words}"


def seeds_of(results: TableResults) -> str:
    """How many seeds were run, of those that the table's configuration has: "3 of 5 seeds", "5 seeds"."""
    count, planned = len(results.seeds), results.table.scales[results.scale].seeds
    return f"{count} of {planned} seeds" if count < planned else f"{count} seeds"


def _figure(entry: Mapping[str, Any]) -> str:
    name = entry["metric"]
    words = MEASURES.get(name) or {"before": "success, untrained", "after": "success, trained"}.get(name, name)
    return words if entry["most"] is None else f"{words}, at most {entry['most']:g}"


def _ours(entry: Mapping[str, Any]) -> str:
    if entry["mean"] is None:
        return f"{UNTESTED}: {entry['why']}"
    stale = f", {entry['stale']} stale" if entry["stale"] else ""
    if entry["low"] is None:
        return f"{entry['mean']:.3f}{stale}"
    return f"{entry['mean']:.3f} ({entry['low']:.3f} to {entry['high']:.3f}){stale}"


def _seeds(entry: Mapping[str, Any]) -> str:
    if not entry["of"]:
        return ""
    return str(entry["n"]) if entry["n"] == entry["of"] else f"{entry['n']} of {entry['of']}"


def _difference(row: Mapping[str, Any]) -> str:
    if row["difference"] is None:
        return ""
    bounds = (
        f" ({row['difference_low']:.3f} to {row['difference_high']:.3f})" if row["difference_low"] is not None else ""
    )
    return f"{row['difference']:.3f}{bounds}{_ratio(row)}"


def _ratio(row: Mapping[str, Any]) -> str:
    """What a difference of natural logarithms is as a ratio; "" of other figures."""
    if not row["metric"].startswith("log_"):
        return ""
    ratio, low, high = (
        None if row[key] is None else math.exp(row[key]) for key in ("difference", "difference_low", "difference_high")
    )
    return f"; ratio {ratio:.3f}" + ("" if low is None else f" ({low:.3f} to {high:.3f})")


def _code(words: Sequence[str]) -> str:
    return f"`{' '.join(words)}`" if words else ""


def _sentence(verdicts: Sequence[Mapping[str, Any]]) -> str:
    counts = counted([dict(row) for row in verdicts])
    return "; ".join(f"{name}: {count}" for name, count in counts.items()) + "."


def _cost(results: TableResults) -> str:
    seconds = [row["cpu_s"] for row in results.runs if row.get("cpu_s")]
    return f"CPU time of these runs: {sum(seconds) / 3600:.2f} hours ({len(seconds)} runs).\n" if seconds else ""
