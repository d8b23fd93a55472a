"""A cgroup (version 2) for each worker, where this process may make one: it bounds all memory, the kernel's included.

See https://docs.kernel.org/admin-guide/cgroup-v2.html.  Without one, the limits of a process remain.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "troupe-sandbox-"
_SLACK: Final = 8 << 20
"""Above the limit of memory: a run copies pages of the worker, and needs page tables and buffers."""
_OWN: Final = ("anon", "kernel_stack", "pagetables", "percpu", "sock", "shmem", "slab_unreclaimable")
"""Memory of a worker that the kernel cannot take back, as named in ``memory.stat``."""
_END_S: Final = 5.0
_numbers = itertools.count()


def find_cgroups() -> Path | None:
    """The nearest folder, from this process's own cgroup upwards, in which it may limit the memory of new cgroups.

    ``None`` where the kernel has no version 2 with memory, or nobody has delegated a cgroup to this user.  Removes what
    processes that were killed have left there.
    """
    for folder in _ancestry():
        with suppress(OSError):
            if folder == next(_ancestry()):  # only the root's may have processes of its own; others refuse
                (folder / "cgroup.subtree_control").write_text("+memory")
            probe = folder / f"{_PREFIX}{os.getpid()}-probe"
            probe.mkdir()
            limits_memory = (probe / "memory.max").exists()
            probe.rmdir()
            if limits_memory and os.access(folder / "cgroup.procs", os.W_OK):
                _clear(folder)
                return folder
    return None


class Cgroup:
    """The cgroup of one worker and its runs."""

    def __init__(self, parent: Path) -> None:
        self._folder = parent / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        self._folder.mkdir()
        self._base = self._limit = self._kills = 0

    def add(self, pid: int) -> None:
        """Move the process ``pid`` here; its children are born here."""
        self._write("cgroup.procs", pid)
        with suppress(FileNotFoundError):  # a kernel without swap
            self._write("memory.swap.max", 0)

    def measure(self) -> None:
        """Take the memory used now as the worker's own, to which limits are added."""
        self._base = sum(value for name, value in self._read("memory.stat") if name in _OWN)

    def limit(self, memory: int) -> None:
        """Allow ``memory`` bytes, and 8 MiB, above the worker's own."""
        if memory != self._limit:
            self._write("memory.max", self._base + memory + _SLACK)
            self._limit = memory

    def killed(self) -> bool:
        """Whether the kernel has killed a process here, because of the limit, since the last call."""
        before, self._kills = self._kills, dict(self._read("memory.events"))["oom_kill"]
        return self._kills > before

    def remove(self) -> None:
        """End all processes here and remove the cgroup."""
        with suppress(FileNotFoundError):  # Linux before 5.14
            self._write("cgroup.kill", 1)
        deadline = time.monotonic() + _END_S
        while True:
            try:
                return self._folder.rmdir()
            except OSError:  # processes take some milliseconds to end
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.001)

    def _write(self, name: str, value: int) -> None:
        (self._folder / name).write_text(str(value))

    def _read(self, name: str) -> Iterator[tuple[str, int]]:
        for line in (self._folder / name).read_text().splitlines():
            key, value = line.split()
            yield key, int(value)


def _ancestry() -> Iterator[Path]:
    """The folder of this process's cgroup of version 2, then those above it."""
    try:
        lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    except OSError:  # not Linux, or no /proc
        return
    roots = [fields[4] for fields in lines if fields[fields.index("-") + 1] == "cgroup2" and fields[3] == "/"]
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
