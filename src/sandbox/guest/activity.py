"""The time in which a run is active: it computes, or waits for a core."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

_DISK_S = 1.0
"""Wall time above its idle time that a run may wait for the disk.  A program can look as if it did: a vfork does."""


class Activity:
    """Adds up the time in which a process was not idle, between one call of :meth:`look` and the next.

    For each interval that is the CPU time of all threads, or the longest time that one thread computed or waited for a
    core, whichever is more.  The waiting times of several threads are not added: they may wait for the same core at the
    same time, and a program must not be able to look busy for longer than the wall time.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu_s = self.seconds = 0.0
        self._looked = time.monotonic()
        self._marks: dict[str, _Mark] = {}
        self.excess_s = 0.0
        """Idle time above its limit that the run may have, by its threads' states at the last look (proc_pid_stat(5)):
        if one was ready to run (R), as long as it may have waited, because that is known only once it runs; some if one
        waited for the disk (D)."""

    def look(self, cpu_s: float) -> None:
        """Add the activity since the last look; ``cpu_s`` is the CPU time of the process so far."""
        threads, now = _threads(self._pid), time.monotonic()
        born = _Mark(0.0, self.seconds, self._looked)
        before = {name: self._marks.get(name, born) for name in threads}
        # A thread that waited for several looks is active from the first of them on, together with whoever ran then.
        ends = [before[name].active_s + thread.spent_s - before[name].spent_s for name, thread in threads.items()]
        self.seconds = max(self.seconds + cpu_s - self._cpu_s, *ends, self.seconds)
        ran = {name for name, thread in threads.items() if thread.spent_s != before[name].spent_s}
        new = {name: _Mark(threads[name].spent_s, self.seconds, self._looked) for name in ran}
        self._marks = {**before, **new}
        ready = [now - self._marks[name].since for name, thread in threads.items() if thread.state == "R"]
        disk_s = _DISK_S if any(thread.state == "D" for thread in threads.values()) else 0.0
        self.excess_s = max(disk_s, *ready, 0.0)
        self._cpu_s, self._looked = cpu_s, now


class _Mark(NamedTuple):
    """A thread when it was last seen to have run, or to have waited for a core."""

    spent_s: float
    active_s: float
    """Activity of the process so far."""
    since: float
    """Monotonic time of the look before: the thread was not ready to run, or had not waited for long, after it."""


class _Thread(NamedTuple):
    state: str
    spent_s: float
    """Time of computing and of waiting for a core."""


def _threads(pid: int) -> dict[str, _Thread]:
    """The threads of a process, as far as the kernel reports them."""
    found = {}
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return {}
    for name in names:
        try:
            state = read(f"/proc/{pid}/task/{name}/stat").rpartition(")")[2].split()[0]
            computing, waiting = read(f"/proc/{pid}/task/{name}/schedstat").split()[:2]
        except (OSError, ValueError, IndexError):  # this thread has ended, or the kernel does not record these figures
            continue
        found[name] = _Thread(state, (int(computing) + int(waiting)) * 1e-9)
    return found


def read(path: str) -> str:
    """The text of a file in /proc, with the carriage returns that a program may have put in its name."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        return file.read()
