"""The worker watches a run until it ends, or kills it at a limit, as of the time in which it is idle."""

from __future__ import annotations

import functools
import os
import select
import signal
import socket
import time
from typing import Final, NamedTuple

from . import wire
from .kernel import ThreadGate
from .wire import Cause, RunRequest

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


_LOOK_AGAIN_S: Final = 0.01
_SAMPLE_S: Final = 0.02
_TABLES_SHARE: Final = 16
"""One part in so many of the memory limit may go to page tables: 32 times as much as mappings without holes need."""


class End(NamedTuple):
    """The end of a run, and the time in which it, or the worker, waited for a core."""

    cause: Cause
    waited_s: float


def supervise(
    pid: int, request: RunRequest, control: socket.socket, *, begin: float, tables: int, gate: ThreadGate | None
) -> End:
    """Wait until ``pid`` ends, or kill it at a limit.

    ``begin``: monotonic time, in seconds.  ``tables``: bytes of page tables that the run has inherited.
    """
    watch = _Watch(pid, request, begin, tables)
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    for fd in (pidfd, control.fileno(), *([gate.fd] if gate is not None else [])):
        poll.register(fd, select.POLLIN)
    cause = Cause.ENDED
    while cause is Cause.ENDED:
        events = dict(poll.poll(max(watch.wait_s(), 0) * 1000 + 1))
        if pidfd in events:
            break
        if gate is not None and gate.fd in events:
            gate.answer(pid, request.threads)
        stopped = control.fileno() in events and _stopped(control, request)
        cause = Cause.STOPPED if stopped else watch.look()
    if cause is not Cause.ENDED:
        _kill(pid, pidfd)
    waited_s = watch.waited_s(pidfd)
    os.close(pidfd)
    return End(cause, waited_s)


def page_tables(pid: int | str) -> int:
    """Bytes that the kernel spends on the page tables of a process; 0 if it has ended."""
    try:
        # Its first line has the name, which a program chooses; the kernel writes a line break in it as \n.
        _, found, rest = read(f"/proc/{pid}/status").partition("\nVmPTE:")
    except OSError:
        return 0
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else 0


class _Watch:
    """Looks at a run when a limit can have been reached, whatever else the worker is woken for."""

    def __init__(self, pid: int, request: RunRequest, begin: float, tables: int) -> None:
        self._pid, self._request, self._begin = pid, request, begin
        self._cpu_clock = (~pid << 3) | 2  # the CPU clock of a process, as clock_getcpuclockid(3) makes it
        self._activity = Activity(pid)
        self._tables = tables + request.memory // _TABLES_SHARE
        now = time.monotonic()
        self._next_sample = now + _SAMPLE_S
        self._first_look = self._next_look = now + min(request.cpu_s, request.idle_s)
        self._own_wait_s = _own_wait_s()

    def waited_s(self, pidfd: int) -> float:
        """See :class:`End`; waits for the end."""
        if time.monotonic() < self._first_look:
            return 0.0
        select.select([pidfd], [], [])
        cpu_s = time.clock_gettime(self._cpu_clock)
        self._activity.look(cpu_s)
        return max(self._activity.seconds - cpu_s, 0.0) + _own_wait_s() - self._own_wait_s

    def wait_s(self) -> float:
        """The time until the next look."""
        return min(self._next_sample, self._next_look) - time.monotonic()

    def look(self) -> Cause:
        """The limit that the run has reached; ``ENDED`` if none."""
        now = time.monotonic()
        if now >= self._next_sample:
            self._next_sample = now + _SAMPLE_S
            if page_tables(self._pid) > self._tables:
                return Cause.PAGE_TABLES
        return self._look_at_time(now - self._begin) if now >= self._next_look else Cause.ENDED

    def _look_at_time(self, wall_s: float) -> Cause:
        request, activity = self._request, self._activity
        cpu_s = time.clock_gettime(self._cpu_clock)
        activity.look(cpu_s)
        idle_s = max(wall_s - activity.seconds, 0)
        if cpu_s >= request.cpu_s:
            return Cause.CPU
        if idle_s >= request.idle_s + activity.excess_s:
            return Cause.IDLE
        if wall_s >= request.backstop_s:
            return Cause.STARVED
        patience_s = max(request.idle_s - idle_s, _LOOK_AGAIN_S)
        self._next_look = time.monotonic() + min(request.cpu_s - cpu_s, patience_s, request.backstop_s - wall_s)
        return Cause.ENDED


def _own_wait_s() -> float:
    """The time that this process has waited for a core; 0 where the kernel does not record it."""
    file = _own_schedstat()
    return 0.0 if file is None else int(os.pread(file, 64, 0).split()[1]) * 1e-9


@functools.cache
def _own_schedstat() -> int | None:
    """A descriptor, opened once: each run reads it."""
    try:
        return os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _stopped(control: socket.socket, request: RunRequest) -> bool:
    """Whether the trainer requests the end of this run, or has closed its end."""
    data = control.recv(wire.MESSAGE_BYTES)
    return not data or wire.is_stop(data, request.run)


def _kill(pid: int, pidfd: int) -> None:
    """Kill the run and its process group (without seccomp it may have forked)."""
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
