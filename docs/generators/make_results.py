"""Write the pages of `docs/results/` whose sweeps have a committed summary: `docs/results/summaries/NAME.jsonl`.

A sweep leaves its `summary.jsonl` in `runs/sweeps/NAME/EXPERIMENT`; a copy of it below `summaries/` is enough to make
its page again, without the runs.  `docs/results.md` has two sections of them: on learning, a line for each of
`sweep=learning` and `sweep=learning_magrpo`; and the CPU-hours of every sweep and of every table of the papers.  ``make
results`` writes the pages; ``tests/sweep/test_summary.py`` checks that they were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marked_section import with_section

from troupe.sweep.reproduction.results import TableResults
from troupe.sweep.rows import TableRow, aggregate
from troupe.sweep.summary import SweepSummary
from troupe.sweep.tables import markdown, page_of, share
from troupe.sweep.verdicts import judge

RESULTS = Path(__file__).parent.parent / "results"
PAGE = RESULTS.parent / "results.md"
MARKS = "<!-- learning, written by `make results`: begin -->\n", "<!-- learning: end -->\n"
HOURS = "<!-- CPU-hours, written by `make results`: begin -->\n", "<!-- CPU-hours: end -->\n"
LEARNING = ("trained", "learning rate 0", "shuffled advantages")
"""The settings of a sweep that shows whether a team learns."""


def pages(results: Path = RESULTS) -> dict[Path, str]:
    """The pages of the summaries in ``results``, by file."""
    summaries = sorted((results / "summaries").glob("*.jsonl"))
    return {results / f"{file.stem}.md": page_of(SweepSummary.read(file)) for file in summaries}


def page(results: Path = RESULTS) -> str:
    """`docs/results.md`, with its sections from the summaries in ``results``."""
    return with_section(
        with_section(PAGE.read_text(encoding="utf-8"), *MARKS, learning(results)), *HOURS, hours(results)
    )


def learning(results: Path) -> str:
    """The table of the summaries of learning."""
    heads = [
        "experiment",
        "algorithm",
        "seeds",
        "before",
        *LEARNING,
        "gain",
        "p, Holm",
        "verdict",
        "commit",
    ]
    files = sorted((results / "summaries").glob("learning*.jsonl"))
    return markdown(heads, [line for file in files for line in learning_lines(file)])


def learning_lines(file: Path) -> list[list[str]]:
    """A line per variant of a sweep: success before training, and after it in each setting; the verdict."""
    summary = SweepSummary.read(file)
    settings = {(row["setting"], row["variant"]): row for row in aggregate(summary.rows)}
    return [
        learning_line(summary, file.stem, {name: settings[name, verdict["variant"]] for name in LEARNING}, verdict)
        for verdict in judge(summary.claims, summary.rows)
    ]


def learning_line(summary: SweepSummary, name: str, settings: dict[str, TableRow], verdict: TableRow) -> list[str]:
    trained, variant = settings["trained"], verdict["variant"]
    commits = {row.get("commit") for row in summary.rows if row["variant"] == variant}
    return [
        f"[`{summary.rows[0]['run'].split('/')[-2]}`](results/{name}.md)" + (f", `{variant}`" if variant else ""),
        "MAGRPO" if summary.name == "learning_magrpo" else "AT-GRPO",
        str(trained["n"]),
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
    sweeps = {
        f"sweep [`{file.stem}`](results/{file.stem}.md)": SweepSummary.read(file).rows
        for file in sorted((results / "summaries").glob("*.jsonl"))
    }
    lines = [hours_line(name, rows) for name, rows in (tables | sweeps).items()]
    runs = {(row["run"], row["code"]): row for rows in (tables | sweeps).values() for row in rows}
    *total, _ = hours_line("all, each run once", [*runs.values()])
    return markdown(["of", "runs", "CPU-hours", "commit"], [*lines, [*total, ""]])


def hours_line(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    seconds = [row["cpu_s"] for row in rows if row["cpu_s"] is not None]
    runs = str(len(seconds)) if len(seconds) == len(rows) else f"{len(seconds)} of {len(rows)}"
    commits = sorted({row["commit"] for row in rows if row.get("commit")})
    return [name, runs, f"{sum(seconds) / 3600:.2f}", ", ".join(commit[:7] for commit in commits)]


if __name__ == "__main__":
    for file, text in {**pages(), PAGE: page()}.items():
        file.write_text(text, encoding="utf-8")
