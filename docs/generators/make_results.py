"""Write the pages of `docs/results/` whose sweeps have a committed summary: `docs/results/summaries/NAME.jsonl`.

A sweep leaves its `summary.jsonl` in `runs/sweeps/NAME/EXPERIMENT`; a copy of it below `summaries/` is enough to make
its page again, without the runs.  The section of `docs/results.md` on learning has a line for each of `sweep=learning`
and `sweep=learning_magrpo`.  ``make results`` writes the pages; ``tests/sweep/test_summary.py`` checks that they were
written.
"""

from __future__ import annotations

from pathlib import Path

from marked_section import with_section

from troupe.sweep.rows import TableRow, aggregate
from troupe.sweep.summary import SweepSummary
from troupe.sweep.tables import markdown, page_of, share
from troupe.sweep.verdicts import judge

RESULTS = Path(__file__).parent.parent / "results"
PAGE = RESULTS.parent / "results.md"
BEGIN, END = "<!-- learning, written by `make results`: begin -->\n", "<!-- learning: end -->\n"
LEARNING = ("trained", "learning rate 0", "shuffled advantages")
"""The settings of a sweep that shows whether a team learns."""


def pages(results: Path = RESULTS) -> dict[Path, str]:
    """The pages of the summaries in ``results``, by file."""
    summaries = sorted((results / "summaries").glob("*.jsonl"))
    return {results / f"{file.stem}.md": page_of(SweepSummary.read(file)) for file in summaries}


def page(results: Path = RESULTS) -> str:
    """`docs/results.md`, with its section on learning from the summaries in ``results``."""
    heads = [
        "experiment",
        "algorithm",
        "seeds",
        "before",
        *LEARNING,
        "trained less before",
        "p, Holm",
        "verdict",
        "commit",
    ]
    files = sorted((results / "summaries").glob("learning*.jsonl"))
    return with_section(PAGE, BEGIN, END, markdown(heads, [line for file in files for line in learning_lines(file)]))


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


if __name__ == "__main__":
    for file, text in {**pages(), PAGE: page()}.items():
        file.write_text(text, encoding="utf-8")
