"""A forked process gives up its rights before it reads a program."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple

from .kernel import Landlock, Seccomp, landlock_restrict
from .wire import RunRequest

STDIN, STDOUT, STDERR, VALUE, PAYLOAD, READY, RULES = range(7)
_STACK: Final = 8 << 20
_DESCRIPTORS: Final = 16, 64
"""At least and at most."""
_CPU_BACKSTOP_S: Final = 2  # whole seconds above the limit, which the worker itself enforces to the millisecond


class Own(NamedTuple):
    """Memory of the worker itself, in bytes: all its address space, and the part of it that may be written.

    A program may unmap what it inherits, libraries for example, and map memory of its own in its place: it gains that
    part at the most.
    """

    mapped: int
    data: int


class Confinement:
    """The layers that restrict every run; a layer that is ``None`` is left out (unsafe execution only)."""

    def __init__(self, landlock: Landlock | None, seccomp: Seccomp | None) -> None:
        self._landlock, self._seccomp = landlock, seccomp
        with socket.socket(socket.AF_UNIX) as one:
            self._buffer_bytes = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

    def apply(self, request: RunRequest, files: Sequence[int], ready: int, own: Own) -> None:
        """Take the five ``files`` of a request as 0 to 4, close all others, and restrict this process.

        The program's memory limit is added to the worker's ``own`` memory.  Writes one byte to ``ready`` at the end.
        Raises ``OSError`` if a layer cannot be applied.
        """
        os.setsid()
        self._take(files, ready)
        _limit(request, own, self._buffer_bytes)
        if self._landlock is not None:
            landlock_restrict(RULES)
            os.close(RULES)
        if self._seccomp is not None:
            self._seccomp.install()
        os.write(READY, b"1")
        os.close(READY)

    def _take(self, files: Sequence[int], ready: int) -> None:
        wanted = [*files, ready] + ([self._landlock.fd] if self._landlock is not None else [])
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in wanted]  # numbers above 0 to 6, which are assigned below
        for target, fd in enumerate(high):
            os.dup2(fd, target)
        os.closerange(len(high), 1 << 16)


def _limit(request: RunRequest, own: Own, buffer_bytes: int) -> None:
    """``buffer_bytes``: memory that one descriptor, a socket, can hold in the kernel; some machines allow much."""
    cpu = int(request.cpu_s) + _CPU_BACKSTOP_S
    fewest, most = _DESCRIPTORS
    limits = {
        resource.RLIMIT_AS: own.mapped + request.memory,
        resource.RLIMIT_DATA: own.data + request.memory,
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_STACK: _STACK,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: min(max(request.memory // buffer_bytes, fewest), most),
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
