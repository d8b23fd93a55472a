"""Tables of runs as CSV and Markdown: `python -m troupe.sweep.tables PATH [PATH ...]`.

A PATH is the folder of a sweep (`runs/sweeps/NAME/EXPERIMENT`), whose tables are made anew from the run directories,
or a run directory; several run directories make one table, grouped by the training keys in which they differ.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import visible
from ..runs.directory import write_atomic
from ..runs.files import EVALUATIONS, RunDirectoryError
from ..runs.index import is_run
from ..runs.run import Run
from .record import SweepRecord
from .rows import METRICS, TableRow, aggregate, jobs_of, row_of
from .verdicts import judge

GROUP = ("setting", "variant")
LEGEND = """Success on held-out tasks. One run: with its 95 % Wilson interval. A setting: the mean over seeds with its
95 % t-interval, and pooled the 95 % Wilson interval over all episodes of all seeds. `stale`: the run was trained by
other code than this, or evaluated otherwise than asked.
"""


def csv_text(rows: Sequence[TableRow]) -> str:
    """Rows as CSV, every column, numbers in full; an unknown value is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def share(row: Mapping[str, Any], name: str, bounds: str = "") -> str:
    """``0.970 (0.936 to 0.986)``, without the interval where there is none, or empty."""
    value, low, high = row[name], row[f"{bounds or name}_low"], row[f"{bounds or name}_high"]
    if value is None:
        return ""
    return f"{value:.3f} ({low:.3f} to {high:.3f})" if low is not None else f"{value:.3f}"


def number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table, without the columns that are empty throughout."""
    columns = [index for index in range(len(heads)) if any(line[index] for line in lines)]
    table = [[heads[i] for i in columns], ["---"] * len(columns), *([line[i] for i in columns] for line in lines)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in table)


def runs_table(rows: Sequence[TableRow]) -> str:
    """One line per run."""
    heads = [*GROUP, "seed", "status", "stale", *METRICS, "turns", "completions", "tokens", "env steps", "wall s"]
    lines = [
        [row["setting"], row["variant"], str(row["seed"]), row["status"], row["stale"]]
        + [share(row, name) for name in METRICS]
        + [number(row["turns"], 2), *(number(row[name]) for name in ("completions", "tokens", "env_steps"))]
        + [number(row["wall_s"], 1), (row["code"] or "")[:8], row["run"] or "", row["note"]]
        for row in rows
    ]
    return markdown([*heads, "code", "run", "note"], lines)


def settings_table(rows: Sequence[TableRow]) -> str:
    """One line per setting: means over seeds with their t-intervals, and pooled Wilson intervals."""
    heads = [*GROUP, "seeds", "stale", *METRICS, "after, pooled", "best, pooled"]
    lines = [
        [row["setting"], row["variant"], _of(row["n"], row["runs"]), str(row["stale"] or "")]
        + [share(row, f"{name}_mean", name) for name in METRICS]
        + [_pooled(row, "after"), _pooled(row, "best"), number(row["turns"], 2)]
        + [number(row[name]) for name in ("completions", "tokens", "env_steps")]
        + [number(row["wall_s"], 1)]
        for row in rows
    ]
    return markdown([*heads, "turns", "completions", "tokens", "env steps", "wall s"], lines)


def _of(part: int, whole: int) -> str:
    return str(whole) if part == whole else f"{part} of {whole}"


def _pooled(row: TableRow, name: str) -> str:
    low, high = row[f"{name}_pooled_low"], row[f"{name}_pooled_high"]
    return "" if low is None else f"{low:.3f} to {high:.3f}"


def verdicts_table(rows: Sequence[TableRow]) -> str:
    """One line per claim."""
    lines = [
        [row["claim"], row["variant"], row["threshold"], share(row, "difference"), str(row["n"])]
        + [row[key] for key in ("verdict", "why")]
        for row in rows
    ]
    return markdown(["claim", "variant", "threshold", "difference", "seeds", "verdict", "why"], lines)


def text_of(rows: Sequence[TableRow], verdicts: Sequence[TableRow], title: str, question: str = "") -> str:
    """The whole page."""
    parts = [f"# {title}\n", f"{question}\n" if question else "", "## Settings\n", settings_table(aggregate(rows))]
    parts += ["## Verdicts\n", verdicts_table(verdicts)] if verdicts else []
    parts += ["## Runs\n", runs_table(rows), LEGEND]
    return "\n".join(part for part in parts if part)


def write_tables(folder: Path) -> tuple[str, list[TableRow]]:
    """Make ``table.md``, ``runs.csv``, ``settings.csv`` and ``verdicts.csv`` of the sweep in ``folder`` anew.

    Returns the page and the rows of its runs.  Raises :class:`RunDirectoryError` naming a file that cannot be read.
    """
    record = SweepRecord.read(folder)
    rows = record.rows()
    verdicts = judge(record.claims, rows)
    page = text_of(rows, verdicts, f"Sweep {record.name}", record.question)
    write_atomic(folder / "table.md", page)
    write_atomic(folder / "runs.csv", csv_text(rows))
    write_atomic(folder / "settings.csv", csv_text(aggregate(rows)))
    if verdicts:
        write_atomic(folder / "verdicts.csv", csv_text(verdicts))
    return page, rows


def page_of_runs(paths: Sequence[Path]) -> str:
    """The page of a list of run directories; those that are not finished are named as such."""
    runs = [Run(path) for path in paths]
    rows = []
    for job, run in zip(jobs_of(runs), runs, strict=True):
        row = row_of(job, run, "finished") if run.finished else row_of(job, None, "unfinished")
        rows.append(row | {"run": str(run.path)})
    return text_of(rows, [], f"{len(rows)} runs")


def _is_untrained(path: Path) -> bool:
    """Whether it holds the evaluations of an untrained team, which lie beside an experiment's runs."""
    return path.name == "base" and (path / EVALUATIONS).is_dir() and not is_run(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    paths = parser.parse_args().paths
    try:
        paths = [path for path in paths if len(paths) == 1 or not _is_untrained(path)]
        sweeps = [path for path in paths if not is_run(path)]
        pages = [write_tables(path)[0] for path in sweeps]
        if runs := [path for path in paths if path not in sweeps]:
            pages.append(page_of_runs(runs))
    except RunDirectoryError as error:
        sys.exit(f"error: {visible(error)}")
    print(visible("\n".join(pages)), end="")


if __name__ == "__main__":
    main()
