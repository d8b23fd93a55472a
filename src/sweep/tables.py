"""Tables of runs as CSV and Markdown: `python -m troupe.sweep.tables PATH [PATH ...]`.

A PATH is the folder of a sweep (`runs/sweeps/NAME/EXPERIMENT`), whose tables are made anew from the run directories;
the `summary.jsonl` of one, from which its tables are made without the runs; or a run directory; several run directories
make one table, grouped by the training keys in which they differ.
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
from .curves_figure import curves_figure
from .readings import Budgets, with_readings
from .record import SweepRecord
from .rows import METRICS, NESTED, READINGS, TableRow, aggregate, jobs_of, row_of
from .summary import SweepSummary
from .verdicts import judge

GROUP = ("setting", "variant")
LEGEND = """Success on held-out tasks. One run: with its 95 % Wilson interval. A setting: the mean over seeds with the
95 % interval of a hierarchical bootstrap over seeds and tasks; without an interval there is one seed, or the episodes
of a run are gone. `stale`: the run was trained by other code than the rest of this page (in the folder of a sweep: than
today's), or evaluated otherwise than asked.
"""
READ = "Read off the learning curves (validation tasks) at the largest budgets that all of these runs reach"
TESTED = """`p, above`: of the hypothesis that the difference is not above the threshold's second figure; `p, below`:
that it is not below the first. Both are corrected by Holm's procedure for all tests of the page (two per claim; 5 % for
one or more wrong rejections). *Surely*: with a corrected p of at most 0.05.
"""
BUDGET = """`budget` of a claim: the largest that the runs of its two settings reach, in completions, tokens or steps.
"""


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, every column, numbers in full; an unknown value is empty; "" without rows."""
    if not rows:
        return ""
    out = io.StringIO()
    columns = [name for name in rows[0] if name not in NESTED]
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
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


Cells = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The heads and the lines of a table."""


def without_empty(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> Cells:
    """Without the columns that are empty throughout."""
    columns = [index for index in range(len(heads)) if any(line[index] for line in lines)]
    return [heads[i] for i in columns], [[line[i] for i in columns] for line in lines]


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table, without the columns that are empty throughout."""
    heads, lines = without_empty(heads, lines)
    table = [heads, ["---"] * len(heads), *lines]
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
    """:func:`settings_cells` as Markdown."""
    return markdown(*settings_cells(rows))


def settings_cells(rows: Sequence[TableRow]) -> Cells:
    """One line per setting: means over seeds with their intervals over seeds and tasks."""
    heads = [*GROUP, "seeds", "stale", *METRICS]
    lines = [
        [row["setting"], row["variant"], _of(row["n"], row["runs"]), str(row["stale"] or "")]
        + [share(row, f"{name}_mean", name) for name in METRICS]
        + [number(row["turns"], 2)]
        + [number(row[name]) for name in ("completions", "tokens", "env_steps")]
        + [number(row["wall_s"], 1)]
        for row in rows
    ]
    return without_empty([*heads, "turns", "completions", "tokens", "env steps", "wall s"], lines)


def _of(part: int, whole: int) -> str:
    return str(whole) if part == whole else f"{part} of {whole}"


def readings_table(rows: Sequence[TableRow], threshold: float | None) -> str:
    """:func:`readings_cells` as Markdown."""
    return markdown(*readings_cells(rows, threshold))


def readings_cells(rows: Sequence[TableRow], threshold: float | None) -> Cells:
    """One line per setting: success at common budgets, and the completions to ``threshold``."""
    heads = [*GROUP, "at equal completions", "at equal tokens", "at equal steps", "area"]
    heads += ["", ""] if threshold is None else [f"completions to {threshold:g}", f"seeds with {threshold:g}"]
    lines = [
        [row["setting"], row["variant"]]
        + [share(row, f"{name}_mean", name) for name in READINGS]
        + [number(row["to_threshold"]), f"{row['reached']} of {row['n']}" if threshold is not None else ""]
        for row in rows
    ]
    return without_empty(heads, lines)


def budgets_line(budgets: Mapping[str, Budgets]) -> str:
    """The common budgets in words, by variant."""
    parts = []
    for variant, own in budgets.items():
        figures = ", ".join(f"{number(value)} {axis}" for axis, value in own.items())
        parts.append(f"{variant}: {figures}" if variant else figures)
    return f"{READ}: {'; '.join(parts)}.\nSteps are optimizer steps per policy; `area` is the mean of the curve.\n"


def verdicts_table(rows: Sequence[TableRow]) -> str:
    """:func:`verdicts_cells` as Markdown."""
    return markdown(*verdicts_cells(rows))


def verdicts_cells(rows: Sequence[TableRow]) -> Cells:
    """One line per claim."""
    lines = [
        [
            *(row["claim"], row["metric"], number(row["budget"]), row["variant"], row["threshold"]),
            *(share(row, "difference"), str(row["n"]), _p(row["p_above"]), _p(row["p_below"])),
            *(row["verdict"], row["why"]),
        ]
        for row in rows
    ]
    heads = ["claim", "success", "budget", "variant", "threshold", "difference", "seeds", "p, above", "p, below"]
    return without_empty([*heads, "verdict", "why"], lines)


def tests_text(verdicts: Sequence[TableRow]) -> str:
    """What the columns of :func:`verdicts_cells` are."""
    return TESTED + (BUDGET if any(row["budget"] is not None for row in verdicts) else "")


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def codes_line(rows: Sequence[TableRow]) -> str:
    """The commits of the finished runs, and the settings whose runs different code has trained; "" where no row
    says."""
    trained = [row for row in rows if row["status"] == "finished"]
    finished = [row for row in trained if row.get("commit")]
    if not finished:
        return ""
    commits = {row["commit"]: sum(each["commit"] == row["commit"] for each in finished) for row in finished}
    codes: dict[str, set[str]] = {}
    for row in finished:
        codes.setdefault(" ".join(filter(None, (row.get("part"), row["setting"], row["variant"]))), set()).add(
            row["code"]
        )
    mixed = [f"{name} ({', '.join(sorted(map(_short, own)))})" for name, own in codes.items() if len(own) > 1]
    parts = [f"`{commit}` ({count} runs)" for commit, count in commits.items()]
    parts += [f"not known ({len(trained) - len(finished)} runs)"] if len(trained) > len(finished) else []
    head = "Commit" if len(parts) == 1 else "Commits"
    text = f"Runs of different code in: {'; '.join(mixed)}." if mixed else "In each setting the code is the same."
    return f"{head} of these runs: {', '.join(parts)}. {text}\n"


def _short(code: str) -> str:
    """Eight digits of each hash: a run that was continued with other code has several."""
    return "+".join(one[:8] for one in code.split("+"))


def uncurved_line(rows: Sequence[TableRow]) -> str:
    """Which finished runs lack the learning curve that others have, so that there is nothing at equal budgets."""
    finished = [row for row in rows if row["status"] == "finished"]
    without = [row for row in finished if not row["curve"]]
    if not without or len(without) == len(finished):
        return ""
    names = "; ".join(f"{row['setting']} {row['variant']}".strip() + f", seed {row['seed']}" for row in without)
    return f"Without a learning curve, so that their variant has no figures at equal budgets: {names}.\n"


def page_of(summary: SweepSummary, title: str = "", figure: str = "") -> str:
    """The whole page; ``figure`` is the path of its learning curves."""
    rows, budgets = with_readings(summary.rows, summary.threshold)
    settings, verdicts = aggregate(rows), judge(summary.claims, rows)
    parts = [f"# {title or f'Sweep {summary.name}'}\n", f"{summary.question}\n" if summary.question else ""]
    parts += ["## Settings\n", settings_table(settings)]
    parts += [f"![Success on validation tasks over training]({figure})\n"] if figure else []
    if budgets:
        parts += ["## At equal budgets\n", readings_table(settings, summary.threshold), budgets_line(budgets)]
    parts += [uncurved_line(rows)]
    parts += ["## Verdicts\n", verdicts_table(verdicts), tests_text(verdicts)] if verdicts else []
    parts += ["## Runs\n", runs_table(rows), LEGEND]
    parts += [codes_line(rows)]
    seconds = [row["cpu_s"] for row in rows if row["cpu_s"]]
    parts += [f"CPU time of these runs: {sum(seconds) / 3600:.2f} hours ({len(seconds)} runs).\n"] if seconds else []
    return "\n".join(part for part in parts if part)


def write_tables(folder: Path) -> tuple[str, list[TableRow]]:
    """Make ``table.md``, ``curves.svg``, ``runs.csv``, ``settings.csv``, ``verdicts.csv`` and ``summary.jsonl`` of the
    sweep in ``folder`` anew, without curves and verdicts where there are none.

    Returns the page and the rows of its runs.  Raises :class:`RunDirectoryError` naming a file that cannot be read.
    """
    summary = SweepRecord.read(folder).summary()
    rows, _ = with_readings(summary.rows, summary.threshold)
    curves = curves_figure(summary)
    page = page_of(summary, figure="curves.svg" if curves else "")
    files = {"table.md": page, "summary.jsonl": summary.text(), "curves.svg": curves}
    files |= {"runs.csv": csv_text(rows), "settings.csv": csv_text(aggregate(rows))}
    files |= {"verdicts.csv": csv_text(judge(summary.claims, rows))}
    write_or_remove(folder, files)
    return page, rows


def write_or_remove(folder: Path, files: Mapping[str, str]) -> None:
    """Write each text under its name; one of an earlier plan that is "" now is removed."""
    for name, text in files.items():
        if text:
            write_atomic(folder / name, text)
        else:
            (folder / name).unlink(missing_ok=True)


def page_of_runs(paths: Sequence[Path]) -> str:
    """The page of a list of run directories; those that are not finished are named as such."""
    runs = [Run(path) for path in paths]
    rows = []
    for job, run in zip(jobs_of(runs), runs, strict=True):
        row = row_of(job, run, "finished") if run.finished else row_of(job, None, "unfinished")
        rows.append(row | {"run": str(run.path)})
    return page_of(SweepSummary("", "", (), None, tuple(rows)), f"{len(rows)} runs")


def _is_untrained(path: Path) -> bool:
    """Whether it holds the evaluations of an untrained team, which lie beside an experiment's runs."""
    return path.name == "base" and (path / EVALUATIONS).is_dir() and not is_run(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    paths = parser.parse_args().paths
    try:
        paths = [path for path in paths if len(paths) == 1 or not _is_untrained(path)]
        summaries = [path for path in paths if path.is_file()]
        pages = [page_of(SweepSummary.read(path)) for path in summaries]
        sweeps = [path for path in paths if not path.is_file() and not is_run(path)]
        pages += [write_tables(path)[0] for path in sweeps]
        if runs := [path for path in paths if path not in (*sweeps, *summaries)]:
            pages.append(page_of_runs(runs))
    except RunDirectoryError as error:
        sys.exit(f"error: {visible(error)}")
    print(visible("\n".join(pages)), end="")


if __name__ == "__main__":
    main()
