"""Write the pages of `docs/results/` whose sweeps have a committed summary: `docs/results/summaries/NAME.jsonl`.

A sweep leaves its `summary.jsonl` in `runs/sweeps/NAME/EXPERIMENT`; a copy of it below `summaries/` is enough to make
its page again, without the runs.  So is that of a table of `bench/configs/reproduce` below `tables/`; the conclusion of
its page is written by hand.  `docs/results.md` has sections of them: the settings and claims of the sweeps in
:data:`SWEEPS`; on learning, a line for each of `sweep=learning` and `sweep=learning_magrpo`; the CPU-hours of every
sweep and of every table of the papers; and, of the evaluations that are kept, trained teams beside their bases.  ``make
results`` writes the pages; ``tests/sweep/test_summary.py`` checks that they were written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from make_base_models import TEAM_HEADS, pass_at_256, team_of, teams
from marked_section import with_section

from troupe.sweep.cross_play import matrices
from troupe.sweep.figures import curves_figure, curves_of, svg
from troupe.sweep.measures import READINGS
from troupe.sweep.outcomes import with_readings
from troupe.sweep.page import TESTED, WORDS, needed, publication_cells, sweep_page
from troupe.sweep.publication_file import TableFile
from troupe.sweep.publication_results import TableResults
from troupe.sweep.rows import TableRow, aggregate
from troupe.sweep.summary import SweepSummary
from troupe.sweep.tables import codes_line, cost_line, markdown, number, share, spread, verdicts_cells
from troupe.sweep.verdicts import judge

RESULTS = Path(__file__).parent.parent / "results"
PAGE = RESULTS.parent / "results.md"
TABLES = RESULTS.parents[1] / "bench" / "configs" / "reproduce"
SWEEPS = (
    "factorial_plan_path_short",
    "factorial_signalling",
    "smollm2_math_lora",
    "trees_plan_path_short",
    "views_short_plan_path_short",
    "views_sokoban",
)
"""The summaries whose settings and claims stand in `docs/results.md`, too."""
Bases = Mapping[tuple[str, frozenset[str]], str]
LEARNING = ("trained", "learning rate 0", "shuffled advantages")
"""The settings of a sweep that shows whether a team learns."""


def pages(results: Path = RESULTS) -> dict[Path, str]:
    """The pages of the summaries in ``results`` and their learning curves, by file."""
    files = {}
    for file in sorted((results / "summaries").glob("*.jsonl")):
        summary = SweepSummary.read(file)
        if figure := curves_figure(summary):
            files[results / f"{file.stem}.svg"] = svg(figure)
        source = f"\nWritten by `make results` from [`summaries/{file.name}`](summaries/{file.name}).\n"
        files[results / f"{file.stem}.md"] = sweep_page(summary, f"{file.stem}.svg" if figure else "") + source
    for name, table in own_tables(results).items():
        files[results / f"{name}.md"] = marked((results / f"{name}.md").read_text(encoding="utf-8"), name, full(table))
    return files


def own_tables(results: Path) -> dict[str, TableResults]:
    """By name, the tables of :data:`TABLES` with a summary in ``results``."""
    tables = {file.stem: TableFile.read(str(file)) for file in sorted(TABLES.glob("*.yaml"))}
    files = {name: results / "tables" / f"{name}_laptop.jsonl" for name in tables}
    return {name: TableResults.read(file, tables[name]) for name, file in files.items() if file.is_file()}


def full(results: TableResults) -> str:
    """What the page of a table of :data:`TABLES` says of its runs."""
    verdicts, table, crossed = results.verdicts(), results.table, matrices(results)
    heads, lines = publication_cells(table)  # the last column is the publication's, which there is not
    parts = [
        grid(results),
        "## Claims\n",
        markdown(*verdicts_cells(verdicts)),
        f"{WORDS}{TESTED}{needed(verdicts)}",
        *(["## By seed\n"] if crossed else []),
        *(f"{title}: {note}\n{markdown(*cells)}" for title, note, cells in crossed),
        "## Settings\n",
        markdown(heads[:2], [line[:2] for line in lines]),
        markdown(["world", "overrides"], [[name, words(results, name)] for name in table.parts]),
        *(f"{note}\n" for note in table.notes),
        codes_line(results.runs),
        cost_line(results.runs).rstrip(),
    ]
    return "\n".join(parts)


def words(results: TableResults, part: str) -> str:
    """The overrides of all runs of ``part``."""
    return f"`{' '.join(results.table.overrides_at(results.scale, results.table.parts[part]))}`"


def grid(results: TableResults) -> str:
    """Success in each world; rows called "A, B" have a line for each A, what a message is paid, and B's column."""
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for entry in results.estimates():
        *line, column = entry["row"].split(", ")
        if entry["n"]:
            value = spread(entry["mean"], entry["low"], entry["high"])
            lines.setdefault((entry["part"], *line), {})[column] = value
    columns = list(dict.fromkeys(row.split(", ")[-1] for row in results.table.rows))
    body = [[*place, *(cells.get(column, "–") for column in columns)] for place, cells in lines.items()]
    heads = ["world", "a message is paid"][: max(map(len, lines), default=1)]
    return markdown([*heads, *columns], body)


def marked(text: str, name: str, section: str) -> str:
    """``text`` with ``section`` between the marks of ``name``."""
    marks = f"<!-- {name}, written by `make results`: begin -->\n", f"<!-- {name}: end -->\n"
    return with_section(text, *marks, section)


def page(results: Path = RESULTS) -> str:
    """`docs/results.md`, with its sections from the summaries and the evaluations in ``results``."""
    bases = pass_at_256(results)
    summaries = {name: SweepSummary.read(results / "summaries" / f"{name}.jsonl") for name in SWEEPS}
    sections = {name: sweep(summary, bases) + curves(name, summary) for name, summary in summaries.items()}
    sections |= {"learning": learning(results, bases), "CPU-hours": hours(results)}
    sections["trained teams"] = markdown(TEAM_HEADS, teams(results))
    sections |= {name: grid(table) for name, table in own_tables(results).items()}
    text = PAGE.read_text(encoding="utf-8")
    for name, section in sections.items():
        text = marked(text, name, section)
    return text


def sweep(summary: SweepSummary, bases: Bases) -> str:
    """The settings of a sweep, each beside its base, and the claims."""
    rows, budgets = with_readings(summary.rows, summary.threshold)
    [common] = budgets.values()
    settings = aggregate(rows)
    common = {
        axis: value for axis, value in common.items() if all(row[f"at_{axis}_mean"] is not None for row in settings)
    }
    at = [f"at {number(value)} {'optimizer steps' if axis == 'steps' else axis}" for axis, value in common.items()]
    threshold = "" if summary.threshold is None else f"completions to {summary.threshold:g}"
    heads = ["setting", "seeds", "base pass@256", "before training", "after", *at, threshold, "sealed tasks"]
    base = {row["setting"]: bases.get(team_of(row), "") for row in rows if row["run"]}
    lines = [
        [row["setting"], str(row["n"]), base[row["setting"]]]
        + [share(row, "before_mean", "before"), share(row, "after_mean", "after")]
        + [f"{row[f'at_{axis}_mean']:.3f}" for axis in common]
        + [number(row["to_threshold"]), share(row, "sealed_mean", "sealed")]
        for row in settings
    ]
    return markdown(heads, lines) + "\n" + claims(judge(summary.claims, rows))


def claims(verdicts: Sequence[TableRow]) -> str:
    """A line per claim, with the verdict for each of its metrics, and the budget where it is one at equal budgets."""
    metrics = list(dict.fromkeys(verdict["metric"] for verdict in verdicts))
    by_claim: dict[str, dict[str, str]] = {}
    for verdict in verdicts:
        budget = "" if verdict["budget"] is None else f" at {number(verdict['budget'])}"
        decided = "**met**" if verdict["verdict"] == "met" else verdict["verdict"]
        cells = by_claim.setdefault(f"{verdict['claim']}: {verdict['threshold']}", {})
        cells[verdict["metric"]] = f"{share(verdict, 'difference')}{budget}, {decided}"
    heads = [f"at equal {READINGS[name]}" if name in READINGS else f"{name} training" for name in metrics]
    return markdown(["claim", *heads], [[claim, *map(cells.get, metrics)] for claim, cells in by_claim.items()])


def curves(name: str, summary: SweepSummary) -> str:
    """The learning curves of a sweep, where it has any."""
    figure = f"\n![Success on validation tasks over training](results/{name}.svg)\n"
    return figure if curves_of(summary) else ""


def learning(results: Path, bases: Bases) -> str:
    """The table of the summaries of learning."""
    heads = [
        "experiment",
        "algorithm",
        "seeds",
        "base pass@256",
        "before",
        *LEARNING,
        "gain",
        "p, Shaffer",
        "verdict",
        "commit",
    ]
    files = sorted((results / "summaries").glob("learning*.jsonl"))
    return markdown(heads, [line for file in files for line in learning_lines(file, bases)])


def learning_lines(file: Path, bases: Bases) -> list[list[str]]:
    """A line per variant of a sweep: success before training, and after it in each setting; the verdict."""
    summary = SweepSummary.read(file)
    settings = {(row["setting"], row["variant"]): row for row in aggregate(summary.rows)}
    return [
        learning_line(
            summary, file.stem, {name: settings[name, verdict["variant"]] for name in LEARNING}, verdict, bases
        )
        for verdict in judge(summary.claims, summary.rows)
    ]


def learning_line(
    summary: SweepSummary, name: str, settings: dict[str, TableRow], verdict: TableRow, bases: Bases
) -> list[str]:
    trained, variant = settings["trained"], verdict["variant"]
    runs = [row for row in summary.rows if row["variant"] == variant]
    commits = {row.get("commit") for row in runs}
    return [
        f"[`{summary.rows[0]['run'].split('/')[-2]}`](results/{name}.md)" + (f", `{variant}`" if variant else ""),
        "MAGRPO" if summary.name == "learning_magrpo" else "AT-GRPO",
        str(trained["n"]),
        bases.get(team_of(runs[0]), ""),
        share(trained, "before_mean", "before"),
        *(share(settings[name], "after_mean", "after") for name in LEARNING),
        share(verdict, "difference"),
        f"{verdict['p_above']:.2g}",
        "; ".join(filter(None, (verdict["verdict"], verdict["why"]))),
        ", ".join(sorted(commit[:7] for commit in commits if commit)),
    ]


def hours(results: Path) -> str:
    """The CPU-hours of each summary in ``results``; a run that several summaries have counts once in the last line."""
    tables = {
        f"table [`{file.stem}`](reproduction.md)": TableResults.read(file).runs
        for file in sorted((results / "reproduction").glob("*.jsonl"))
    }
    own = {f"table [`{name}`](results/{name}.md)": table.runs for name, table in own_tables(results).items()}
    sweeps = {
        f"sweep [`{file.stem}`](results/{file.stem}.md)": SweepSummary.read(file).rows
        for file in sorted((results / "summaries").glob("*.jsonl"))
    }
    lines = [hours_line(name, rows) for name, rows in (tables | own | sweeps).items()]
    runs = {(row["run"], row["code"]): row for rows in (tables | own | sweeps).values() for row in rows}
    *total, _ = hours_line("all, each run once", [*runs.values()])
    lines.append([*total, ""])
    if files := sorted((results / "evaluations").glob("*.json")):
        seconds = [json.loads(file.read_text(encoding="utf-8"))["seconds"] for file in files]
        what = "evaluations of [base models and trained teams](results/base_models.md), hours of the wall"
        lines.append([what, str(len(files)), f"{sum(seconds) / 3600:.2f}", ""])
    return markdown(["of", "runs", "CPU-hours", "commit"], lines)


def hours_line(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    seconds = [row["cpu_s"] for row in rows if row["cpu_s"] is not None]
    runs = str(len(seconds)) if len(seconds) == len(rows) else f"{len(seconds)} of {len(rows)}"
    commits = sorted({row["commit"] for row in rows if row.get("commit")})
    return [name, runs, f"{sum(seconds) / 3600:.2f}", ", ".join(commit[:7] for commit in commits)]


if __name__ == "__main__":
    for file, text in {**pages(), PAGE: page()}.items():
        file.write_text(text, encoding="utf-8")
