"""List runs: status, success on the test tasks before and after training, iterations, wall time, and what a run has
otherwise than others of its name.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import no_folder, visible
from ..reports.grouping import ABSENT, differences, last_name
from ..reports.values import duration, numeric
from ..runs.files import RunDirectoryError
from ..runs.index import find_runs
from ..runs.run import RunReader

HEADS = ("run", "status", "success", "iterations", "wall time", "differs")


def main(arguments: Sequence[str]) -> None:
    """``troupe runs [DIR ...]``."""
    parser = argparse.ArgumentParser("troupe runs", description=__doc__)
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="*", help="folders with runs below them (runs)")
    parser.add_argument("--json", action="store_true", help="one JSON object per run and line")
    options = parser.parse_args(arguments)
    folders = options.folders or [Path("runs")]
    for folder in folders:
        if not folder.is_dir():
            sys.exit(f"error: {visible(f'{folder}: {no_folder(folder)}')}")
    runs = {run: facts(run) for folder in folders for run in find_runs(folder)}
    for run, differs in differences([run for run, row in runs.items() if "problem" not in row]).items():
        runs[run]["differs"] = differs
    rows = list(runs.values())
    if options.json:
        print("".join(json.dumps(row) + "\n" for row in rows), end="")
    elif rows:
        problems = [row["problem"] for row in rows if "problem" in row]
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join([*fitted([HEADS, *map(cells, rows)], width), *problems]))
    else:
        print(f"no runs below {', '.join(map(str, folders))}")


def facts(run: RunReader) -> dict[str, Any]:
    """What is known of ``run``.  ``status`` is that of its summary, or ``running``, ``killed`` (it has no status, and
    no process trains in it), ``damaged`` (``problem`` names the file).
    """
    row: dict[str, Any] = {"run": str(run.path)}
    try:
        summary, loop = run.summary, run.config.get("loop")
        iterations = summary.get("iterations")
        row |= {
            "status": run.state,
            "success_before": summary.get("eval_before/success"),
            "success_after": summary.get("eval/success"),
            "iterations": len(run.rows) if iterations is None else iterations,
            "of_iterations": loop.get("iterations") if isinstance(loop, Mapping) else None,
            "wall_s": summary.get("time/wall_s"),
        }
    except RunDirectoryError as error:
        row |= {"status": "damaged", "problem": str(error)}
    return row


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The row of the table; empty where nothing is known."""
    before, after = (
        f"{value:.1%}" if numeric(value := row.get(f"success_{when}")) else "" for when in ("before", "after")
    )
    success = f"{before} -> {after}" if after else before
    done, planned, wall = row.get("iterations"), row.get("of_iterations"), row.get("wall_s")
    iterations = "" if done is None else f"{done} of {planned}" if planned not in (None, done) else str(done)
    values = [f"{last_name(key)}={value}" for key, value in row.get("differs", {}).items() if value != ABSENT]
    parts = (
        row["run"],
        row["status"],
        success,
        iterations,
        duration(wall) if numeric(wall) else "",
        " ".join(dict.fromkeys(values)),
    )
    return tuple(visible(part).replace("\n", "␊") for part in parts)


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows as lines with columns of equal width."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def fitted(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """:func:`aligned`.  Where that is wider than ``width``, what differs is cut, or each run has several lines."""
    lines = aligned(rows)
    rest = 0 if width is None else width - max(len(line) for line in aligned([row[:-1] for row in rows])) - 2
    if width is None or max(map(len, lines)) <= width:
        return lines
    if rest >= 24:
        return aligned([(*row[:-1], textwrap.shorten(row[-1], rest, placeholder=" ...")) for row in rows])
    return [
        line
        for run, *facts, differs in rows[1:]
        for line in (
            run,
            *textwrap.wrap("  ".join(filter(None, facts)), width, initial_indent="  "),
            *textwrap.wrap(
                differs, width, initial_indent="  ", subsequent_indent="  ", max_lines=2, placeholder=" ..."
            ),
        )
    ]
