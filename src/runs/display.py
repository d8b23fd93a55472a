"""Progress on the console: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int = 40) -> str:
    """The last ``width`` values in [0, 1] as bars."""
    return "".join(BARS[min(len(BARS) - 1, int(max(0.0, v) * len(BARS)))] for v in values[-width:])


def describe(name: str, result: Mapping[str, Any]) -> str:
    """One evaluation as a line."""
    low, high = result["success_ci95"]
    return (
        f"{name}: success {result['success']:.1%} (95 % interval {low:.1%} to {high:.1%}, "
        f"{result['episodes']} held-out tasks), {result['turns']:.2f} turns"
    )


class Display:
    """Shows progress of ``iterations`` iterations; use as a context."""

    def __init__(self, title: str, iterations: int, console: Console | None = None) -> None:
        self.console = console or Console()
        self.title, self.iterations = title, iterations
        self._success: list[float] = []
        self._train: list[float] = []
        self._chosen = True
        self._rows: list[tuple[str, str]] = []
        self._progress = Progress(
            TextColumn("iteration {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
        )
        self._first = 0
        self._bar = self._progress.add_task("train", total=max(iterations, 1))
        self._live = Live(self, console=self.console, refresh_per_second=4) if self.console.is_terminal else None
        self._started = time.perf_counter()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def __rich__(self) -> Panel:
        table = Table.grid(padding=(0, 2))
        if self._success:
            table.add_row("success (held out)", f"{self._success[-1]:6.1%} {sparkline(self._success)}")
        if self._train:
            table.add_row(
                "best of K (training)" if self._chosen else "success (training)",
                f"{self._train[-1]:6.1%} {sparkline(self._train)}",
            )
        for name, value in self._rows:
            table.add_row(name, value)
        return Panel(Group(table, self._progress), title=self.title)

    def goes_on(self, done: int) -> None:
        """``done`` iterations were complete before this session."""
        self._first = done
        self._progress.update(self._bar, completed=done)

    def say(self, line: str) -> None:
        """Print a line that stays above the panel."""
        self.console.print(line, highlight=False, soft_wrap=True)

    def evaluation(self, name: str, result: Mapping[str, Any]) -> None:
        self._success.append(result["success"])
        self.say(describe(name, result))

    def iteration(self, done: int, row: Mapping[str, Any], agents: tuple[str, ...], expected: int) -> None:
        """Show one iteration's metrics; ``done`` iterations are complete, ``expected`` is the estimated total."""
        self.iterations = expected
        self._chosen = "rollout/best_of_k_success" in row
        self._train.append(row["rollout/best_of_k_success" if self._chosen else "rollout/success"])
        rewards = "  ".join(f"{agent} {row[f'rollout/{agent}/reward']:.3f}" for agent in agents)
        self._rows = [
            ("reward per message", rewards),
            ("turns", f"{row['rollout/turns']:.2f}"),
            ("tokens/s", f"{row['rollout/tokens_per_s']:,.0f}"),
        ]
        self._progress.update(self._bar, completed=done, total=max(expected, 1))
        if not self._live:
            left = (time.perf_counter() - self._started) / (done - self._first) * (self.iterations - done)
            self.say(
                f"iteration {done}/{self.iterations}  reward {rewards}  turns {row['rollout/turns']:.2f}  "
                f"{row['rollout/tokens_per_s']:,.0f} tokens/s  ETA {left:.0f} s"
            )
