"""How worlds run the programs of agents: in the sandbox, each program once."""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from hashlib import blake2b
from typing import Any, Self

from ..sandbox import Job, Limits, Opaque, Result, Sandbox, Verdict
from .base import SandboxFailure

CACHE_BYTES = 1 << 27
"""Memory that the cache may take, whatever programs return; the least recently used results are dropped first."""


class Executor:
    """A sandbox with its limits, and a cache of the results of programs.

    The sandbox is deterministic, so that the same job has the same result; only a program that reads the clock, or the
    like, could tell a cached result from a new one.  A copy is the object itself: forks of a world share it.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits, cache_bytes: int = CACHE_BYTES) -> None:
        self.sandbox, self.limits, self.cache_bytes = sandbox, limits, cache_bytes
        self.runs = 0
        """How many programs really ran."""
        self.used_bytes = 0
        """Memory of the results in the cache."""
        self._cache: OrderedDict[bytes, tuple[Result, int]] = OrderedDict()
        self._pending: dict[bytes, asyncio.Task[Result]] = {}

    async def result(self, job: Job) -> Result:
        """The result of ``job``, never ``INFRA``.

        Raises :class:`~.base.SandboxFailure` where the sandbox failed: nothing is known of the program then.
        """
        key = blake2b(repr(job).encode("utf-8", "backslashreplace")).digest()  # the job itself may hold megabytes
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key][0]
        if key not in self._pending:
            # Candidates of one prompt step at the same time, and often say the same: they wait for one run.
            self._pending[key] = asyncio.create_task(self._run(key, job))
        return await asyncio.shield(self._pending[key])

    async def open(self) -> dict[str, bool | int | str]:
        """Start the sandbox; returns the facts of its isolation.

        Raises :class:`..sandbox.SandboxUnavailable`, and :class:`~.base.SandboxFailure` where it fails.
        """
        await self.result(Job())
        return {name: value for name, value in self.sandbox.describe().items() if isinstance(value, bool | int | str)}

    async def close(self) -> None:
        """End the sandbox's workers."""
        await self.sandbox.close()

    async def _run(self, key: bytes, job: Job) -> Result:
        try:
            result = await self.sandbox.run(job, self.limits)
        finally:
            del self._pending[key]
        self.runs += 1
        if result.verdict is Verdict.INFRA:
            raise SandboxFailure(f"the sandbox failed: {result.detail}")
        self._add(key, result)
        return result

    def _add(self, key: bytes, result: Result) -> None:
        size = _size((key, result.stdout, result.stderr, result.value, result.detail))
        self._cache[key] = result, size
        self.used_bytes += size
        while self.used_bytes > self.cache_bytes:
            _, (_, dropped) = self._cache.popitem(last=False)
            self.used_bytes -= dropped

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _size(value: Any) -> int:
    """Bytes of a value and of all that is in it."""
    total, pending = 0, [value]
    while pending:
        item = pending.pop()
        total += sys.getsizeof(item)
        if isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            pending += item
        elif isinstance(item, Opaque):
            pending += [item.items]
    return total
