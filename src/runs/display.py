"""Progress on the console: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import errno
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..errors import number_of, visible
from ..experience import Episode
from .faults import Observers
from .files import PHASE
from .samples import SampleMessage, evaluated_messages, one_line, sampled_messages

BARS = "▁▂▃▄▅▆▇█"
LONG_S = 60.0
"""Where there is no terminal, a phase that took longer gets a line of its own."""
LINES = 6
"""Messages of the sample episode on the panel, at the most."""
LIVE_GROUPS = re.compile(r"train/(.+)/live_groups")

PhaseName = Literal["rollout", "probe", "update", "loading weights", "evaluation"]


def sparkline(values: list[float], width: int = 40) -> str:
    """The last ``width`` values in [0, 1] as bars."""
    return "".join(BARS[min(len(BARS) - 1, int(max(0.0, v) * len(BARS)))] for v in values[-width:])


def describe(name: str, result: Mapping[str, Any]) -> str:
    """One evaluation as a line."""
    low, high = result["success_ci95"]
    lost = f", {count} lost" if (count := result.get("lost_episodes")) else ""
    return (
        f"{name}: success {result['success']:.1%} (95 % interval {low:.1%} to {high:.1%}, "
        f"{number_of(result['episodes'], 'held-out task')}{lost}), {result['turns']:.2f} turns"
    )


P = ParamSpec("P")
T = TypeVar("T")


def observing(method: Callable[Concatenate[Display, P], T]) -> Callable[Concatenate[Display, P], T | None]:
    """A method of the display that never ends the run; see :class:`.observers.Observers`."""

    @wraps(method)
    def run(display: Display, /, *arguments: P.args, **keywords: P.kwargs) -> T | None:
        return display.observers.run("display", method, display, *arguments, **keywords)

    return run


class Terminal(Console):
    """Standard output.  Where its reader is gone (``troupe train | head``), rich would end the process."""

    def on_broken_pipe(self) -> None:
        try:
            super().on_broken_pipe()  # what is printed from now on goes nowhere
        except SystemExit as error:
            raise BrokenPipeError(errno.EPIPE, "nobody reads the standard output any more") from error


@dataclass
class Phase:
    """A part of an iteration: ``done`` of ``episodes`` have ended (None: it plays none), with so many completions.

    ``sample`` holds the messages of its first episode.
    """

    name: PhaseName
    episodes: int | None
    detail: str
    started: float
    done: int = 0
    completions: int = 0
    sample: list[SampleMessage] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.name} ({self.detail})" if self.detail else self.name

    def progress(self, now: float) -> str:
        """How far it is after ``now`` seconds."""
        counts = (
            "" if self.episodes is None else f"{self.done}/{self.episodes} episodes  {self.completions:,} completions  "
        )
        return f"{counts}{now - self.started:.0f} s"


class Display:
    """Shows progress of ``iterations`` iterations; use as a context.

    The loop says which phase begins, and reports every episode and every row of metrics.  The run's ``folder``, where
    it is given, has the present phase in a file.  ``verbose`` prints a line and a whole sample episode per phase, on a
    terminal too.  ``clock`` gives seconds.  Whatever fails here, the run goes on: ``observers`` say so.
    """

    def __init__(
        self,
        title: str,
        iterations: int,
        console: Console | None = None,
        *,
        folder: Path | None = None,
        verbose: bool = False,
        observers: Observers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.observers = console or Terminal(), observers or Observers()
        self.title, self.iterations, self.verbose, self._clock = title, iterations, verbose, clock
        self._file = folder and folder / PHASE
        self._success: dict[str, list[float]] = {}
        self._train: list[float] = []
        self._chosen = True
        self._rows: list[tuple[str, str]] = []
        self._sample: list[SampleMessage] = []
        self._alarms: dict[str, str] = {}
        self._faults: Counter[str] = Counter()  # of this session
        self._phase: Phase | None = None
        self._first = self._done = 0
        self._began: float | None = None  # the first iteration of this session
        self._started = self._last_end = clock()
        self._live = Live(self, console=self.console, refresh_per_second=4) if self.console.is_terminal else None

    def __enter__(self) -> Self:
        self._start()
        return self

    @observing
    def _start(self) -> None:
        if self._live:
            self._live.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @observing
    def _stop(self) -> None:
        self._end_phase()
        if self._live:
            self._live.stop()
        if self._file:
            self._file.unlink(missing_ok=True)

    # ---- reports of the loop ----------------------------------------------------------------------------------------

    def goes_on(self, done: int) -> None:
        """``done`` iterations were complete before this session."""
        self._first = self._done = done

    @observing
    def say(self, line: str) -> None:
        """Print a line that stays above the panel."""
        self.console.print(visible(line), highlight=False, markup=False, soft_wrap=True)

    @observing
    def phase(self, name: PhaseName, episodes: int | None = None, detail: str = "") -> None:
        """A phase begins, in which this process plays ``episodes``; the one before is over."""
        self._end_phase()
        now = self._clock()
        if name == "rollout" and self._began is None:
            self._began = now
        self._phase = Phase(name, episodes, detail, now)
        if self._file:
            self._file.write_text(self._phase.title)

    @observing
    def rollout_episode(self, episode: Episode) -> None:
        """An episode of the rollout has ended; it may be played during another phase, which does not count it."""
        if self._phase is not None and self._phase.name == "evaluation":
            return
        self._count_episode(episode.generated, lambda: sampled_messages(episode))

    @observing
    def evaluation_episode(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """An episode of an evaluation has ended, with these messages."""
        self._count_episode(len(messages), lambda: evaluated_messages(messages))

    @observing
    def evaluation(self, name: str, result: Mapping[str, Any]) -> None:
        """The result of an evaluation."""
        self._end_phase()
        split = "validation" if name.startswith("validation") else "test"
        self._success.setdefault(split, []).append(result["success"])
        self.say(describe(name, result))

    @observing
    def iteration(self, done: int, row: Mapping[str, Any], agents: tuple[str, ...], expected: int) -> None:
        """Show one iteration's metrics; ``done`` iterations are complete, ``expected`` is the estimated total.

        An agent that no episode called has none.
        """
        self._end_phase()
        self.iterations, self._done, self._last_end = expected, done, self._clock()
        self._chosen = "rollout/best_of_k_success" in row
        self._train.append(row["rollout/best_of_k_success" if self._chosen else "rollout/success"])
        earned = ((agent, row.get(f"rollout/{agent}/reward")) for agent in agents)
        rewards = "  ".join(f"{agent} {'-' if reward is None else f'{reward:.3f}'}" for agent, reward in earned)
        live = "  ".join(f"{match[1]} {row[key]:.0%}" for key in row if (match := LIVE_GROUPS.fullmatch(key)))
        turns, speed = f"{row['rollout/turns']:.2f}", f"{row['rollout/tokens_per_s']:,.0f}"
        self._rows = [("reward per message", rewards), ("live groups", live), ("turns", turns), ("tokens/s", speed)]
        self._faults.update({key.removeprefix("faults/"): int(row[key]) for key in row if key.startswith("faults/")})
        faults = "  ".join(f"{name} {count}" for name, count in self._faults.items() if count)
        self._rows += [("faults so far", faults)] if faults else []
        if not self._live:
            self.say(
                f"iteration {done}/{expected}  reward {rewards}  live groups {live}  turns {turns}  "
                f"{speed} tokens/s  ETA {self._eta_s():.0f} s" + (f"  faults so far: {faults}" if faults else "")
            )

    @observing
    def alarms(self, active: Mapping[str, str]) -> None:
        """The alarms that are raised now, each a line by its name; a new one and one that is over are printed."""
        for name, line in active.items():
            if name not in self._alarms:
                self.say(f"ALARM {line}")
        for name in self._alarms:
            if name not in active:
                self.say(f"alarm over: {name}")
        self._alarms = dict(active)

    def _count_episode(self, completions: int, messages: Callable[[], list[SampleMessage]]) -> None:
        if self._phase is None:
            return
        self._phase.done += 1
        self._phase.completions += completions
        if not self._phase.sample and (sample := messages()):
            self._phase.sample = self._sample = sample

    def _end_phase(self) -> None:
        """Print what the phase was, where it was long and there is no panel; and its sample if ``verbose``."""
        phase, now = self._phase, self._clock()
        self._phase = None
        if phase is None:
            return
        if self.verbose or (not self._live and now - phase.started > LONG_S):
            self.say(f"{phase.title}: {phase.progress(now)}")
        for message in phase.sample if self.verbose else ():
            if message.saw:
                self.say(f"    turn {message.turn}  {message.agent} saw: {one_line(message.saw)}")
            self.say(f"    {message.line()}")

    def _eta_s(self) -> float:
        """Seconds until the last iteration ends, at this session's pace."""
        began = self._started if self._began is None else self._began
        pace = (self._last_end - began) / (self._done - self._first)
        return max(0.0, self._last_end + pace * (self.iterations - self._done) - self._clock())

    # ---- the panel --------------------------------------------------------------------------------------------------

    def __rich__(self) -> Panel | str:
        return self._panel() or ""

    @observing
    def _panel(self) -> Panel:
        table = Table.grid(padding=(0, 2))
        for split, success in self._success.items():
            table.add_row(f"success ({split})", f"{success[-1]:6.1%} {sparkline(success)}")
        if self._train:
            name = "best of K (training)" if self._chosen else "success (training)"
            table.add_row(name, f"{self._train[-1]:6.1%} {sparkline(self._train)}")
        for name, value in self._rows:
            table.add_row(name, Text(value))
        sample = [
            Text(message.line(self.console.width), no_wrap=True, overflow="ellipsis", style="dim")
            for message in self._sample[:LINES]
        ]
        alarms = [Text(f"ALARM {visible(line)}", style="bold red") for line in self._alarms.values()]
        return Panel(Group(*alarms, table, *sample, self._bars()), title=Text(self.title))

    def _bars(self) -> Table:
        """How far the run is, and how far its present phase."""
        now, bars = self._clock(), Table.grid(padding=(0, 2))
        total = max(self.iterations, 1)
        times = f"elapsed {_clock_time(now - self._started)}"
        if self._done > self._first:
            times += f"  ETA {_clock_time(self._eta_s())}"
        share = f"{self._done / total:.0%}  "
        bars.add_row(
            f"iteration {self._done}/{self.iterations}", ProgressBar(total, self._done, width=20), share + times
        )
        if (phase := self._phase) is not None:
            bar = ProgressBar(phase.episodes, phase.done, width=20, pulse=phase.episodes is None)
            bars.add_row(Text(phase.title), bar, phase.progress(now))
        return bars


def _clock_time(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))
