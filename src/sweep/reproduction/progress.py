"""How far a table is: runs that are done, under way and left, and the time left, as lines that can be piped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Protocol

from ...runs.files import LOCK, RunDirectoryError
from ...runs.index import find_runs
from ...runs.lock import is_held
from ...runs.periodic import every
from ..stored import stored_runs
from .plan import TablePlan


class Progress:
    """Reads the run directories; besides them only the summaries of ``finished=`` say what is finished.

    ``jobs`` runs are trained at a time.  The remaining time is that of the missing runs at the mean time of the
    finished ones, of the same part where there are any.
    """

    def __init__(self, plan: TablePlan, jobs: int) -> None:
        self._part = {job.training: part.name for part in plan.parts for job in part.record.jobs}
        self._runs = {part.record.runs for part in plan.parts}
        self._hashes: dict[Path, str] = {}
        self._seconds: dict[str, float] = {}
        self._jobs = jobs
        for file in {file for part in plan.parts for file in part.record.finished}:
            for run in stored_runs(file):
                if run.training_hash in self._part:
                    self._seconds[run.training_hash] = float(run.row["wall_s"] or 0.0)

    def line(self) -> str:
        """``3 of 10 runs done, 2 under way, 5 left, about 12 min left``: those under way are not among the 5, but the
        time is also theirs."""
        under_way = len(self._read() - self._seconds.keys())
        missing = [hash for hash in self._part if hash not in self._seconds]
        left = len(missing) - under_way
        text = f"{len(self._seconds)} of {len(self._part)} runs done, {under_way} under way, {left} left"
        return f"{text}{f', {self._remaining(missing)}' if missing else ''}"

    def _read(self) -> set[str]:
        """The training hashes of runs that are under way."""
        under_way = set[str]()
        for folder in self._runs:
            for run in find_runs(folder):
                try:
                    training = self._hashes.get(run.path) or run.training_hash
                    self._hashes[run.path] = training
                    if training not in self._part or training in self._seconds:
                        continue
                    if run.finished:
                        self._seconds[training] = float(run.summary.get("time/wall_s", 0.0))
                    elif is_held(run.path / LOCK):
                        under_way.add(training)
                except (RunDirectoryError, KeyError):
                    continue  # a run that is only just being written: the next look reads it
        return under_way

    def _remaining(self, missing: Sequence[str]) -> str:
        seconds = 0.0
        for training in missing:
            own = [s for hash, s in self._seconds.items() if self._part[hash] == self._part[training]]
            if not (known := own or list(self._seconds.values())):
                return "time left: known once a run has ended"
            seconds += fmean(known)
        return f"about {_words(seconds / min(self._jobs, len(missing)))} left"


class TeamProgress:
    """Counts teams of finished runs.  The remaining time is at the pace of the last ones: those that were played before
    are found at once."""

    LAST = 10

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self._done, self._clock = total, 0, clock
        self._ends: deque[float] = deque(maxlen=self.LAST + 1)

    def add(self) -> None:
        """One more is done."""
        self._done += 1
        self._ends.append(self._clock())

    def line(self) -> str:
        """``12 of 250 teams played, about 40 min left``."""
        left, ends = self.total - self._done, [*self._ends]
        text = f"{self._done} of {self.total} teams played"
        if not left:
            return text
        if len(ends) < 2:
            return f"{text}, time left: known after two"
        return f"{text}, about {_words(left * (ends[-1] - ends[0]) / (len(ends) - 1))} left"


class Line(Protocol):
    def line(self) -> str: ...


@contextmanager
def shown(progress: Line, say: Callable[[str], None], every_s: float = 5.0) -> Iterator[None]:
    """A context in which each change of ``progress`` is a line, with the time since its beginning."""
    last, started = "", time.monotonic()

    def look() -> None:
        nonlocal last
        if (line := progress.line()) != last:
            last = line
            say(f"[{_words(time.monotonic() - started)}] {line}")

    look()
    try:
        with every(every_s, look):
            yield
    finally:
        look()


def _words(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
