"""A cgroup for each worker's programs, where this process may make one: it bounds all memory, the kernel's included.

See https://docs.kernel.org/admin-guide/cgroup-v2.html, and cgroup-v1/memory.html there for machines whose controller of
memory is still of version 1.  Without either, the limits of a process remain.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PREFIX: Final = "troupe-sandbox-"
_SLACK: Final = 8 << 20
"""Above the limit of memory: a run copies pages of the worker, and needs page tables and buffers."""


@dataclass(frozen=True)
class _Version:
    """The files of a version of cgroups: the limit, the limit of swap, and the number of killed processes."""

    filesystem: str
    limit: str
    swap: str
    kills: str


_V2: Final = _Version("cgroup2", "memory.max", "memory.swap.max", "memory.events")
_V1: Final = _Version("cgroup", "memory.limit_in_bytes", "memory.swappiness", "memory.oom_control")
_END_S: Final = 5.0
_numbers = itertools.count()


def find_cgroups() -> Path | None:
    """The nearest folder, from this process's own cgroup upwards, in which it may limit the memory of new cgroups; of
    version 2 if there is one.

    ``None`` where nobody has delegated a cgroup with the controller of memory to this user.  Removes what processes
    that were killed have left there.
    """
    for version in (_V2, _V1):
        for folder in _ancestry(version):
            with suppress(OSError):
                # Only the root's may have processes of its own; others refuse.
                if version is _V2 and folder == next(_ancestry(version)):
                    (folder / "cgroup.subtree_control").write_text("+memory")
                probe = folder / f"{_PREFIX}{os.getpid()}-probe"
                probe.mkdir()
                limits_memory = (probe / version.limit).exists()
                probe.rmdir()
                if limits_memory and os.access(folder / "cgroup.procs", os.W_OK):
                    _clear(folder)
                    return folder
    return None


class Cgroup:
    """The cgroup of one worker's programs.  The worker itself stays outside: the kernel may kill any process here, or
    refuse it memory.
    """

    def __init__(self, parent: Path) -> None:
        self._folder = parent / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        self._folder.mkdir()
        self._version = _V1 if (self._folder / _V1.limit).exists() else _V2
        self._limit = self._kills = 0
        with suppress(FileNotFoundError):  # a kernel without swap
            self._write(self._version.swap, 0)

    @property
    def processes(self) -> Path:
        """A process whose number is written to this file moves here; 0 is the writer."""
        return self._folder / "cgroup.procs"

    def limit(self, memory: int) -> None:
        """Allow ``memory`` bytes and 8 MiB."""
        if memory != self._limit:
            self._write(self._version.limit, memory + _SLACK)
            self._limit = memory

    def killed(self) -> bool:
        """Whether the kernel has killed a process here, because of the limit, since the last call."""
        lines = (self._folder / self._version.kills).read_text().splitlines()
        before, self._kills = self._kills, int(dict(line.split() for line in lines)["oom_kill"])
        return self._kills > before

    def remove(self) -> None:
        """End all processes here and remove the cgroup."""
        if (self._folder / "cgroup.kill").exists():  # version 2, Linux 5.14
            self._write("cgroup.kill", 1)
        deadline = time.monotonic() + _END_S
        while True:
            for pid in self.processes.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            try:
                return self._folder.rmdir()
            except OSError:  # processes take some milliseconds to end
                if time.monotonic() > deadline:
                    if self.processes.read_text():
                        raise
                    return  # empty, and still busy, as version 1 can be: the next start removes it
                time.sleep(0.001)

    def _write(self, name: str, value: int) -> None:
        (self._folder / name).write_text(str(value))


def _ancestry(version: _Version) -> Iterator[Path]:
    """The folder of this process's cgroup of this version, then those above it."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        cgroups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:  # not Linux, or no /proc
        return
    controller = "memory" if version is _V1 else ""
    own = [path for _, controllers, path in cgroups if controller in controllers.split(",")]
    roots = [
        fields[4]
        for fields in mounts
        if fields[(dash := fields.index("-")) + 1] == version.filesystem
        and fields[3] == "/"
        and (not controller or controller in fields[dash + 3].split(","))
    ]
    if not roots or not own or ".." in own[0]:
        return
    folder = Path(roots[0] + own[0])
    yield folder
    yield from (above for above in folder.parents if above.is_relative_to(roots[0]))


def _clear(folder: Path) -> None:
    """Remove the empty cgroups of processes that have ended."""
    for left in folder.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            with suppress(OSError):
                left.rmdir()
