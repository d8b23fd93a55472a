"""The pages of sweeps and of tables, and the files beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scipy.stats import t

from ..errors import number_of
from ..runs.directory import write_atomic
from ..runs.tables import PlainTable
from .claims import Claim
from .cross_play import matrices
from .outcomes import with_readings
from .publication_file import SILENT, TableFile, cross_name
from .publication_results import ABSENT, APPEARS, UNDECIDED, UNTESTED, TableResults, counted
from .record import SweepRecord
from .rows import TableRow, aggregate
from .summary import SweepSummary
from .tables import (
    COST_HEADS,
    Cells,
    budgets_line,
    codes_line,
    cost_line,
    csv_text,
    figure_name,
    latex,
    markdown,
    readings_cells,
    runs_cells,
    settings_cells,
    spread,
    uncurved_line,
    verdicts_cells,
    without_empty,
)
from .verdicts import LEVEL, judge

LEGEND = """Success on held-out tasks. One run: with its 95 % Wilson interval. A setting: the mean over seeds with the
95 % interval of a hierarchical bootstrap over seeds and tasks; without an interval there is one seed, or the episodes
of a run are gone. `stale`: the run was trained by other code than the rest of this page (in the folder of a sweep: than
today's), or evaluated otherwise than asked.
"""
BRACKETS = "Success on held-out tasks: means over seeds, in brackets 95 % intervals over seeds and tasks.\n"
TESTED = """`p, above`: of the hypothesis that the difference is not above the threshold's second figure; `p, below`:
that it is not below the first. Both are corrected by Shaffer's procedure for all tests of the page (two per claim, of
which at most one can be true; 5 % for one or more wrong rejections). *Surely*: with a corrected p of at most 0.05.
`budget` of a claim: the largest that the runs of its two settings reach, in completions, tokens or steps.
"""
READ = """Ours: the mean over seeds with its 95 % interval (success: over seeds and tasks, docs/experiments.md; other
figures: over seeds). The paper's figures are in {unit}, of other models and tasks than ours, from transcriptions that
were not compared with the paper itself; they have no seeds and no intervals.
"""
WORDS = f"""Verdicts, by thresholds that were fixed in the table's configuration before the runs: *{APPEARS}*: the mean
difference reaches the threshold, and is surely above its second figure. *{ABSENT}*: the difference is surely too small.
*{UNDECIDED}*: neither is sure. *{UNTESTED}*: nothing was compared.
"""
SEEDS = {"same": "of the same seed", "others": "of each other seed", "all": "of each seed"}
"""Of a team's partners, in words."""


MEANT = "Success on {}held-out tasks: mean over seeds [95 % interval over seeds and tasks]."
"""What a LaTeX table shows."""
NO_CHARTS = "There are no charts: matplotlib is missing (pip install -c constraints.txt '.[charts]').\n"


def has_charts() -> bool:
    """Whether matplotlib, which draws them, is installed."""
    return find_spec("matplotlib") is not None


def write_tables(folder: Path) -> tuple[str, list[TableRow]]:
    """Make ``table.md`` and ``.tex``, ``curves.svg`` and ``.pdf``, ``runs.csv``, ``settings.csv``, ``verdicts.csv`` and
    ``summary.jsonl`` of the sweep in ``folder`` anew, without those that have nothing in them.

    Returns the page and the rows of its runs.  Raises :class:`RunDirectoryError` naming a file that cannot be read.
    """
    summary = SweepRecord.read(folder).summary()
    rows, _ = with_readings(summary.rows, summary.threshold)
    page = sweep_page(summary, _draw(summary, folder / "curves")) + ("" if has_charts() else f"\n{NO_CHARTS}")
    files = {"table.md": page, "summary.jsonl": summary.text(), "runs.csv": csv_text(rows)}
    settings = aggregate(rows)
    files |= {"settings.csv": csv_text(settings), "verdicts.csv": csv_text(judge(summary.claims, rows))}
    tasks = sorted({str(row["after_episodes"]) for row in rows if row.get("after_episodes")})
    caption = f"{summary.question or summary.name} {MEANT.format(' or '.join(tasks) + ' ' if tasks else '')}"
    files |= {"table.tex": latex(settings_cells(settings), caption, summary.name, COST_HEADS)}
    _write_or_remove(folder, files)
    return page, rows


def write_results(results: TableResults, folder: Path) -> str:
    """Write ``table.md``, ``.tex`` and ``.csv``, ``verdicts.csv``, ``summary.jsonl``, and ``plot.svg`` and ``.pdf``,
    each where there is anything for it, and remove an earlier one where there is not.

    Returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    page = table_page(results, _draw(results, folder / "plot")) + ("" if has_charts() else f"\n{NO_CHARTS}")
    files = {"table.md": page, "summary.jsonl": results.text(), "table.csv": csv_text(_flat(results.estimates()))}
    files |= {"verdicts.csv": csv_text(results.verdicts())}
    caption = f"{results.table.title}: {seeds_of(results)}, scale {results.scale}. {MEANT.format('')}"
    files |= {"table.tex": latex(estimates_cells(results.estimates()), caption, results.table.name, ("section",))}
    _write_or_remove(folder, files)
    return page


def _draw(what: SweepSummary | TableResults, place: Path) -> str:
    """Write the chart of ``what`` as SVG and PDF at ``place``, and remove an earlier one where there is none by now.
    Returns the name of the SVG, or ""."""
    figure = None
    if has_charts():
        from .figures import curves_figure, table_figure, write_figure  # of an extra

        figure = curves_figure(what) if isinstance(what, SweepSummary) else table_figure(what)
    if figure is not None:
        write_figure(figure, place)
        return f"{place.name}.svg"
    for kind in ("svg", "pdf"):
        place.with_suffix(f".{kind}").unlink(missing_ok=True)
    return ""


def _write_or_remove(folder: Path, files: Mapping[str, str]) -> None:
    """Write each text under its name; one of an earlier plan that is "" now is removed."""
    for name, text in files.items():
        if text:
            write_atomic(folder / name, text)
        else:
            (folder / name).unlink(missing_ok=True)


def sweep_tables(rows: Sequence[TableRow], claims: Sequence[Claim], threshold: float | None) -> list[PlainTable]:
    """The settings of a sweep, at equal budgets too, and the verdicts on its claims; notes are Markdown."""
    rows, budgets = with_readings(rows, threshold)
    settings, verdicts = aggregate(rows), judge(claims, rows)
    tables = [PlainTable("Settings", *settings_cells(settings), BRACKETS)]
    if budgets:
        cells = readings_cells(settings, threshold)
        tables.append(PlainTable("At equal budgets", *cells, budgets_line(budgets)))
    if verdicts:
        tables.append(PlainTable("Verdicts", *verdicts_cells(verdicts), TESTED))
    return tables


def sweep_page(summary: SweepSummary, figure: str = "") -> str:
    """The page of a sweep; ``figure`` is the path of its learning curves."""
    settings, *others = sweep_tables(summary.rows, summary.claims, summary.threshold)
    parts = [f"# Sweep {summary.name}\n", f"{summary.question}\n" if summary.question else "", *_section(settings)]
    parts += [f"![Success on validation tasks over training]({figure})\n"] if figure else []
    parts += [part for table in others for part in _section(table)]
    parts += [uncurved_line(summary.rows), "## Runs\n", markdown(*runs_cells(summary.rows)), LEGEND]
    parts += [codes_line(summary.rows), cost_line(summary.rows)]
    return "\n".join(part for part in parts if part)


def _section(table: PlainTable) -> list[str]:
    return [f"## {table.title}\n", markdown(table.heads, table.lines), table.note]


def table_page(results: TableResults, figure: str = "", level: int = 1) -> str:
    """The page of a table; ``figure`` is the path of the plot, ``level`` that of its headings."""
    table, head, verdicts, crossed = results.table, "#" * level, results.verdicts(), matrices(results)
    parts = [
        f"{head} {table.title}\n",
        f"{table.question} Publication: {table.publication}. Table `{table.name}`, {_scope(results)}.\n",
        f"{head}# Results\n",
        markdown(*estimates_cells(results.estimates())),
        READ.format(unit="per cent" if table.unit == "%" else table.unit),
        f"![{table.title}: ours beside the paper's]({figure})\n" if figure else "",
        f"{head}# Claims\n",
        markdown(*verdicts_cells(verdicts)),
        "; ".join(f"{name}: {count}" for name, count in counted(verdicts).items()) + ".\n",
        f"{WORDS}{TESTED}{needed(verdicts)}",
        f"{head}# Cross-play\n" if crossed else "",
        *(f"{title}: {note}\n{markdown(*cells)}" for title, note, cells in crossed),
        f"{head}# Settings\n",
        markdown(*publication_cells(table)),
        *(f"{note}\n" for note in table.notes),
        codes_line(results.runs),
        cost_line(results.runs),
    ]
    return "\n".join(part for part in parts if part)


def estimates_cells(entries: Sequence[Mapping[str, Any]]) -> Cells:
    """One line per row of the table and part."""
    heads = ["part", "variant", "row", "figure", "ours", "seeds", "the paper's", "section"]
    lines = [
        [
            *(entry["part"], entry["variant"], entry["row"], _figure(entry), _ours(entry), _seeds(entry)),
            *(_published(entry), entry["section"]),
        ]
        for entry in entries
    ]
    return without_empty(heads, lines)


def needed(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """How large a difference the first decision of a table takes, by its numbers of seeds and of hypotheses that can be
    true together; "" where nothing is tested."""
    tested = [row for row in verdicts if row["p_above"] is not None]
    if not tested:
        return ""
    seeds = max(row["n"] for row in tested)
    errors = float(t.isf(LEVEL / sum(row["most_true"] for row in tested), seeds - 1))
    return (
        f"With {seeds} seeds and {2 * len(tested)} tests, the first decision takes a difference of "
        f"{errors:.{0 if errors >= 10 else 1}f} standard errors beyond the figure that it is tested against.\n"
    )


def publication_cells(table: TableFile) -> Cells:
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
    return without_empty(["setting", "overrides", "publication"], lines)


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
    return f"{count} of {planned} seeds" if count < planned else number_of(count, "seed")


def _figure(entry: Mapping[str, Any]) -> str:
    most = "" if entry["most"] is None else f", at most {entry['most']:g}"
    return figure_name(entry["metric"]) + most


def _ours(entry: Mapping[str, Any]) -> str:
    if entry["mean"] is None:
        return f"{UNTESTED}: {entry['why']}"
    stale = f", {entry['stale']} stale" if entry["stale"] else ""
    return spread(entry["mean"], entry["low"], entry["high"]) + stale


def _seeds(entry: Mapping[str, Any]) -> str:
    if not entry["of"]:
        return ""
    return str(entry["n"]) if entry["n"] == entry["of"] else f"{entry['n']} of {entry['of']}"


def _code(words: Sequence[str]) -> str:
    return f"`{' '.join(words)}`" if words else ""
