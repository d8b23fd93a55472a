"""Reads a pipe that an untrusted process writes to, in bounded memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_CHUNK = 1 << 16
_SMALL, _MANY_SMALL, _REST_S = 1 << 12, 64, 0.005
"""After so many reads of so few bytes, it rests before each further one: whoever writes byte by byte must not keep the
trainer's loop busy, which plays all other episodes."""


class Drain:
    """Keeps the first ``keep`` bytes, counts the others, and calls ``overflow`` once at more than ``limit`` bytes."""

    def __init__(self, keep: int, limit: int, overflow: Callable[[], None]) -> None:
        self.total = self._small = 0
        self._keep, self._limit, self._overflow = keep, limit, overflow
        self._data = bytearray()
        self._loop = asyncio.get_running_loop()
        self.ended = self._loop.create_future()
        self._fd, self._write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._read)

    @property
    def write_end(self) -> int:
        """The descriptor for the process that writes."""
        return self._write_end

    @property
    def data(self) -> bytes:
        """The first bytes, ``keep`` at most."""
        return bytes(self._data)

    @property
    def overflowed(self) -> bool:
        """Whether more bytes than the limit were written."""
        return self.total > self._limit

    @property
    def truncated(self) -> bool:
        """Whether more bytes were written than are kept."""
        return self.total > self._keep

    def close_write_end(self) -> None:
        """Close this process's copy of the write end, so that the pipe ends when its writer ends."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    def close(self) -> None:
        """Stop reading and close both ends."""
        self.close_write_end()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        chunk = os.read(self._fd, _CHUNK)
        if not chunk:
            self._loop.remove_reader(self._fd)
            if not self.ended.done():
                self.ended.set_result(None)
            return
        before, self.total = self.overflowed, self.total + len(chunk)
        self._data += chunk[: max(self._keep - len(self._data), 0)]
        if self.overflowed and not before:
            self._overflow()
        self._small += len(chunk) <= _SMALL
        if self._small > _MANY_SMALL and len(chunk) <= _SMALL:
            self._loop.remove_reader(self._fd)
            self._loop.call_later(_REST_S, self._go_on)

    def _go_on(self) -> None:
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._read)
