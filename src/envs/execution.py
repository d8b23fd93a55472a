"""How worlds run what agents write: in the sandbox, each program once."""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from hashlib import blake2b
from typing import Any, Self

from ..sandbox import Job, Limits, Result, Sandbox, Verdict
from .base import WorldFailure

REMEMBERED = 4096
"""Results kept; those asked for least recently are forgotten first."""
REMEMBERED_BYTES = 1 << 27
"""Memory that the results kept may take, whatever programs give."""


class Execution:
    """A sandbox with its limits, and what came of the programs that ran lately.

    The sandbox is deterministic, so that the same job has the same result; only programs that ask the clock, or the
    like, could tell a remembered result from a fresh one.  A copy is the object itself: forks of a world share it.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        limits: Limits,
        remembered: int = REMEMBERED,
        remembered_bytes: int = REMEMBERED_BYTES,
    ) -> None:
        self.sandbox, self.limits = sandbox, limits
        self.remembered, self.remembered_bytes = remembered, remembered_bytes
        self.runs = 0
        """How many programs were really run."""
        self.held_bytes = 0
        """Memory of the results kept."""
        self._kept: OrderedDict[bytes, tuple[Result, int]] = OrderedDict()
        self._going: dict[bytes, asyncio.Task[Result]] = {}

    async def result(self, job: Job) -> Result:
        """What came of ``job``, never ``INFRA``.

        Raises :class:`~.base.WorldFailure` where the sandbox failed: nothing is known of the program then.
        """
        key = blake2b(repr(job).encode("utf-8", "backslashreplace")).digest()  # the job itself may hold megabytes
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        if key not in self._going:
            # Candidates of one prompt step at the same time, and often say the same: they wait for one run.
            self._going[key] = asyncio.create_task(self._run(key, job))
        return await asyncio.shield(self._going[key])

    async def open(self) -> dict[str, bool | int | str]:
        """Start the sandbox; what protects the trainer.

        Raises :class:`..sandbox.SandboxUnavailable`, and :class:`~.base.WorldFailure` where the sandbox fails.
        """
        await self.result(Job())
        described = self.sandbox.describe()
        return {name: value for name, value in described.items() if isinstance(value, bool | int | str)}

    async def close(self) -> None:
        """End the sandbox's workers."""
        await self.sandbox.close()

    async def _run(self, key: bytes, job: Job) -> Result:
        try:
            found = await self.sandbox.run(job, self.limits)
        finally:
            del self._going[key]
        self.runs += 1
        if found.verdict is Verdict.INFRA:
            raise WorldFailure(f"the sandbox failed: {found.detail}")
        self._keep(key, found)
        return found

    def _keep(self, key: bytes, found: Result) -> None:
        size = _size((key, found.stdout, found.stderr, found.value, found.detail))
        self._kept[key] = found, size
        self.held_bytes += size
        while len(self._kept) > self.remembered or self.held_bytes > self.remembered_bytes:
            _, (_, forgotten) = self._kept.popitem(last=False)
            self.held_bytes -= forgotten

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
        elif isinstance(item, list | tuple):
            pending += item
    return total
