"""Write docs/reproduction.md, and the plots of its tables, from the summaries in `docs/results/reproduction/`.

`troupe reproduce` leaves `summary.jsonl` in `runs/reproduce/TABLE/SCALE`; a copy named `TABLE_SCALE.jsonl` is all that
this needs.  A table without one is *not tested yet*; figures of earlier sweeps, whose runs by seed are in
`docs/results/*.csv`, stand beside it, and are no verdict.  ``make results`` writes the page;
``tests/sweep/test_publication_results.py`` checks that it was written.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from make_base_models import bases, share, team_name, team_of

from troupe.evaluation.statistics import SHARE, t_interval
from troupe.sweep.claims import Claim
from troupe.sweep.figures import svg, table_figure
from troupe.sweep.page import seeds_of, table_page
from troupe.sweep.publication_file import SCALES, TableFile, table_names
from troupe.sweep.publication_results import TableResults, counted
from troupe.sweep.tables import markdown

DOCS = Path(__file__).parent.parent
PAGE, TEMPLATE = DOCS / "reproduction.md", Path(__file__).parent / "reproduction.template"
NOT_YET = "not tested yet"
EARLIER = {
    "main": {"sokoban": "regime_sokoban", "plan_path": "regime_plan_path"},
    "role_swap": {"sokoban": "role_swap_sokoban", "plan_path": "role_swap_plan_path"},
    "grouping": {"sokoban": "grouping_sokoban"},
    "competitors": {"sokoban": "algorithm_sokoban"},
}
"""By table and part, the sweep whose runs are in docs/results/NAME.csv."""
BASES = """Untrained, the teams of these tables solve in one attempt, and in at least one of many, at temperature 1
([all base models](results/base_models.md)); teams that are not here were not measured:

"""
AS_SWEPT = {("specialized, policies exchanged", "after"): ("specialized", "swapped")}
"""Setting and metric of a table, and of an earlier sweep where they have other names."""


def files(docs: Path = DOCS) -> dict[Path, str]:
    """The page and the plots, by file."""
    summaries = sorted((docs / "results" / "reproduction").glob("*.jsonl"))
    results = {file: TableResults.read(file) for file in summaries}
    tables = [TableFile.read(name) for name in table_names()]
    sections = [_overview(tables, list(results.values())), _bases(list(results.values()), docs)]
    plots = {docs / _plot(file): table_figure(each) for file, each in results.items()}
    drawn = {file: svg(plot) for file, plot in plots.items() if plot is not None}
    for table in tables:
        own = {file: each for file, each in results.items() if each.table.name == table.name}
        for file, each in own.items():
            sections.append(table_page(each, _plot(file) if docs / _plot(file) in drawn else "", level=2))
        if not any(each.scale == "laptop" for each in own.values()):
            sections.append(_untested(table, docs))
    text = TEMPLATE.read_text(encoding="utf-8").replace("TABLES", "\n".join(sections).rstrip())
    return {docs / PAGE.name: text} | drawn


def _plot(file: Path) -> str:
    """Where the plot of the summary ``file`` is, from docs/."""
    return f"results/reproduction/{file.stem}.svg"


def _overview(tables: Sequence[TableFile], results: Sequence[TableResults]) -> str:
    """One line per table: what was tested at each of its scales."""
    lines = []
    for table in tables:
        states = []
        for scale in (scale for scale in SCALES if scale in table.scales):
            own = next((each for each in results if (each.table.name, each.scale) == (table.name, scale)), None)
            if own is not None:
                counts = counted(own.verdicts())
                verdicts = ", ".join(f"{name}: {count}" for name, count in counts.items() if count)
                states.append(f"{verdicts} ({seeds_of(own)})")
            else:
                states.append("a plan" if scale == "paper" else NOT_YET)
        scales = dict(zip((scale for scale in SCALES if scale in table.scales), states, strict=True))
        lines.append([f"`{table.name}`", table.question, *(scales.get(scale, "-") for scale in SCALES)])
    return markdown(["table", "question", *SCALES], lines)


def _bases(results: Sequence[TableResults], docs: Path) -> str:
    """What the untrained teams of the tables solve in many attempts."""
    teams = sorted({team_of(run) for each in results for run in each.runs if run["run"]}, key=str)
    curves = bases(docs / "results")
    lines = [
        [team_name(name, sorted(overrides))] + [share(curves[name, overrides], k) for k in (1, 32, 256)]
        for name, overrides in teams
        if (name, overrides) in curves
    ]
    return BASES + markdown(["team", "pass@1", "pass@32", "pass@256"], lines)


def _untested(table: TableFile, docs: Path) -> str:
    """A table without a summary at laptop scale: its claims, and what earlier sweeps have."""
    lines = [[one.claim, one.paper, _why(table, one)] for one in table.claims]
    claims = markdown(["claim", "the paper's", "verdict"], lines)
    about = f"{table.question} Publication: {table.publication}. Table `{table.name}`: {NOT_YET}."
    parts = [f"## {table.title}\n", about, "", claims]
    if earlier := _earlier(table, docs):
        pages = ", ".join(f"[{stem}](results/{stem}.md)" for stem in EARLIER[table.name].values())
        parts += [f"Figures of earlier sweeps, made with earlier code ({pages}); no verdict of this table uses them:\n"]
        parts += [earlier]
    return "\n".join(parts)


def _why(table: TableFile, claim: Claim) -> str:
    """Why there is no verdict at laptop scale."""
    if claim.not_tested:
        return f"not tested: {claim.not_tested}"
    parts = [part for name, part in table.parts_at("laptop").items() if not claim.parts or name in claim.parts]
    settings = [name for name in (claim.setting, claim.over) if name]
    reasons = [
        next(filter(None, (table.reason_without("laptop", part, name) for name in settings)), "") for part in parts
    ]
    return f"cannot be tested at this scale: {reasons[0]}" if reasons and all(reasons) else NOT_YET


def _earlier(table: TableFile, docs: Path) -> str:
    """The rows of ``table`` that an earlier sweep has: mean over seeds, with its 95 % t-interval."""
    lines = []
    for part, stem in EARLIER.get(table.name, {}).items():
        with (docs / "results" / f"{stem}.csv").open(encoding="utf-8", newline="") as file:
            runs = [row for row in csv.DictReader(file) if row["status"] == "finished"]
        for label, row in table.rows.items():
            setting, metric = AS_SWEPT.get((row.setting, row.metric), (row.setting, row.metric))
            if values := [float(run[metric]) for run in runs if run["setting"] == setting and run.get(metric)]:
                lines.append([part, label, _mean(values), str(len(values)), _published(row.paper.get(part, {}))])
    return markdown(["part", "row", "success", "seeds", "the paper's, %"], lines) if lines else ""


def _mean(values: Sequence[float]) -> str:
    interval = t_interval(values, SHARE)
    return f"{fmean(values):.3f}" + (f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else "")


def _published(figures: Mapping[str, float | str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in figures.items())


if __name__ == "__main__":
    for file, text in files().items():
        file.write_text(text, encoding="utf-8")
