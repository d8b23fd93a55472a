"""List runs: status, success on the test tasks before and after training, iterations, wall time, and what a run has
otherwise than others of its name.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import no_folder, visible
from ..reports.grouping import ABSENT, differences, last_name
from ..reports.values import duration, numeric
from ..runs.files import RunDirectoryError
from ..runs.index import find_runs
from ..runs.run import RunReader

HEADS = ("run", "status", "success", "iterations", "wall time", "differs")
WIDEST = 10_000
"""Characters of a line that no terminal shows."""


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
        show(rows)
        print("".join(f"{problem}\n" for problem in problems), end="")
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


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the table.  In a terminal that is too narrow paths, and what differs, have several lines."""
    from rich.console import Console  # once it is needed
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="")
    for head in HEADS:
        table.add_column(head, no_wrap=head not in ("run", "differs"), overflow="fold")
    for row in rows:
        table.add_row(*cells(row))
    console = Console(width=None if sys.stdout.isatty() else WIDEST, markup=False, highlight=False, emoji=False)
    console.print(table)
