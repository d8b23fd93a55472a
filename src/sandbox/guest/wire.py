"""The messages between trainer and worker: datagrams of fixed layout over a Unix socket."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple, Self

FILES: Final = 5
"""A request carries five file descriptors: payload, stdin, stdout, stderr, value."""

MEMORY_EXIT: Final = 86
"""The exit status after an uncaught ``MemoryError``.  A program may forge it, without any gain."""

MESSAGE_BYTES: Final = 1 << 17


class Cause(IntEnum):
    """The reason why a run ended, as the worker observed it."""

    ENDED = 0  # by itself, or by a signal from the kernel
    CPU = 1  # killed: its CPU time was used up
    IDLE = 2  # killed: it was idle too long
    STOPPED = 3  # killed: the trainer requested it
    STARVED = 4  # killed: the machine gave it too little CPU time
    UNPREPARED = 5  # a restriction could not be applied: the program was never started
    PAGE_TABLES = 6  # killed: the kernel spent too much memory on its page tables
    CGROUP = 7  # killed by the kernel: all memory, the kernel's own included, reached the limit of its cgroup


class RunRequest(NamedTuple):
    """Times in seconds, memory in bytes above the address space of the worker itself."""

    run: int
    cpu_s: float
    idle_s: float
    backstop_s: float
    memory: int
    threads: int

    def pack(self) -> bytes:
        return _REQUEST.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        return cls(*_REQUEST.unpack(data))


class RunReply(NamedTuple):
    """``status`` as ``waitpid`` returns it; times in seconds; ``peak`` in bytes above the worker's own memory.

    ``refused``: whether it asked for more threads than it may have.  ``waited_s``: the part of ``wall_s`` in which the
    run or the worker waited for a core; 0 for a run that ended before the first look at its time.
    """

    run: int
    cause: Cause
    status: int
    cpu_s: float
    wall_s: float
    peak: int
    refused: bool = False
    waited_s: float = 0.0

    def pack(self) -> bytes:
        return _REPLY.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        run, cause, *rest = _REPLY.unpack(data)
        return cls(run, Cause(cause), *rest)


_REQUEST = struct.Struct("<QdddQQ")
_REPLY = struct.Struct("<QIiddQ?d")
_STOP = struct.Struct("<Q")


def pack_stop(run: int) -> bytes:
    """The message that makes the worker kill ``run``; ignored if the run has ended."""
    return _STOP.pack(run)


def is_stop(data: bytes, run: int) -> bool:
    """Whether ``data`` is the message to kill ``run``."""
    return len(data) == _STOP.size and _STOP.unpack(data)[0] == run


def is_request(data: bytes) -> bool:
    """Whether ``data`` is a request, and not a late message to stop."""
    return len(data) == _REQUEST.size
