"""Tables of evaluations, and progress: framed on a terminal, plain text elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..errors import visible
from ..runs.periodic import every
from .comparison import PairedComparison
from .conditions import Played


def show(console: Console, table: Table) -> None:
    """Print ``table``: framed on a terminal; elsewhere blanks separate the columns, and no cell is wrapped."""
    if console.is_terminal:
        console.print(table)
        return
    table.box, table.pad_edge = None, False
    wide = Console(file=io.StringIO(), width=10_000)
    with wide.capture() as captured:
        wide.print(table)
    for line in captured.get().splitlines():
        console.print(line.rstrip(), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def episode_progress(console: Console, total: int, every_s: float = 30.0) -> Iterator[Played]:
    """Shows how many of ``total`` episodes are done, the messages so far, and the time left: a bar on a terminal;
    elsewhere a line every ``every_s`` seconds, also while no episode ends.  Yields the counts that it shows.
    """
    played, started = Played(), time.monotonic()
    if console.is_terminal:
        columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}, ETA"))
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            task = bar.add_task("", total=total)
            with every(
                0.1, lambda: bar.update(task, completed=played.episodes, description=f"{played.messages:,} messages")
            ):
                yield played
        return

    def say() -> None:
        seconds, done = time.monotonic() - started, played.episodes
        new = done - played.kept
        left = f"{seconds / new * (total - done):.0f} s" if new else "after the first one"
        line = f"[{seconds:.0f} s] {done} of {total} episodes, {played.messages} messages, ETA {left}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    with every(every_s, say):
        yield played


def evaluation_table(conditions: Mapping[str, Mapping[str, Any]], seconds: Mapping[str, float]) -> Table:
    """One row per metric, one column per condition, the ``seconds`` that a condition took among the metrics."""
    table = Table("")
    for name in conditions:
        table.add_column(_text(name), justify="right")
    conditions = {name: {**row, **_pace(row, seconds.get(name))} for name, row in conditions.items()}
    metrics = dict.fromkeys(key for row in conditions.values() for key in row if not key.endswith("_ci95"))
    for metric in metrics:
        table.add_row(_text(_head(metric, conditions)), *(_text(_cell(row, metric)) for row in conditions.values()))
    return table


def benchmark_table(conditions: Mapping[str, Mapping[str, Any]], seconds: Mapping[str, float]) -> Table:
    """One row per condition, one column per figure.  The ``seconds`` that a condition took are divided by its episodes,
    which are played side by side.
    """
    rates = dict.fromkeys(
        key for row in conditions.values() for key in row if key.startswith(("avg@", "pass@")) and "_ci95" not in key
    )
    columns = ["success", *rates, "tokens per episode", "s per episode", "tokens per s"]
    table = Table("", "tasks", "samples", *(_head(column, conditions) for column in columns))
    for name, row in conditions.items():
        own = {**row, "tokens per episode": row["tokens"] / (row["episodes"] or 1), **_pace(row, seconds.get(name))}
        cells = (str(row["tasks"]), str(row["samples"]), *(_cell(own, column) for column in columns))
        table.add_row(_text(name), *cells)
    return table


def _head(metric: str, conditions: Mapping[str, Mapping[str, Any]]) -> str:
    """``metric``, and beside ``avg@n`` which episodes it is of, where it is not of all."""
    several = metric == "success" and any(row.get("samples", 1) != 1 for row in conditions.values())
    return "success, first sample" if several else metric


def _pace(row: Mapping[str, Any], seconds: float | None) -> dict[str, float]:
    """The seconds per episode and the tokens per second of a condition; nothing where its ``seconds`` are not known."""
    if not seconds or not row.get("episodes"):
        return {}
    return {"s per episode": seconds / row["episodes"], "tokens per s": row["tokens"] / seconds}


def _text(name: object) -> Text:
    """What a file holds, which is neither markup nor a command for the terminal."""
    return Text(visible(name))


def _cell(row: Mapping[str, Any], metric: str) -> str:
    if metric not in row:
        return ""
    value, interval = row[metric], row.get(f"{metric}_ci95")
    if not isinstance(value, int | float):
        return str(value)
    if isinstance(interval, list) and len(interval) == 2 and all(isinstance(end, int | float) for end in interval):
        return f"{value:.3f} ({interval[0]:.3f}-{interval[1]:.3f})"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def comparison_table(rows: Sequence[tuple[str, PairedComparison]]) -> Table:
    """One row per pair of conditions, by name."""
    seeds = any(row.seeds > 1 for _, row in rows)
    last = ["p, Holm"] if seeds else ["only A", "only B", "McNemar p"]
    table = Table("condition", "seeds" if seeds else "tasks", "A", "B", "B - A (95 %)", *last)
    for name, row in rows:
        low, high = row.interval
        cells = [f"{row.first:.3f}", f"{row.second:.3f}", f"{row.difference:+.3f} ({low:+.3f} to {high:+.3f})"]
        cells += (
            [] if seeds else ["several samples", ""] if row.p is None else [f"{row.only_first}", f"{row.only_second}"]
        )
        tasks = f"{row.tasks} ({row.lost} lost)" if row.lost else str(row.tasks)
        p = "" if row.p is None else f"{row.p:.2g}"
        table.add_row(_text(name), str(row.seeds) if seeds else tasks, *cells, p)
    return table
