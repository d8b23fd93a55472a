"""How worlds run what agents write: in the sandbox, each program once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Self

from ..sandbox import Job, Limits, Result, Sandbox, Verdict
from .base import WorldFailure

REMEMBERED = 4096
"""Results kept; those asked for least recently are forgotten first."""


class Execution:
    """A sandbox with its limits, and what came of the programs that ran lately.

    The sandbox is deterministic, so that the same job has the same result; only programs that ask the clock, or the
    like, could tell a remembered result from a fresh one.  A copy is the object itself: forks of a world share it.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits, remembered: int = REMEMBERED) -> None:
        self.sandbox, self.limits, self.remembered = sandbox, limits, remembered
        self.runs = 0
        """How many programs were really run."""
        self._kept: OrderedDict[str, Result] = OrderedDict()
        self._going: dict[str, asyncio.Task[Result]] = {}

    async def result(self, job: Job) -> Result:
        """What came of ``job``, never ``INFRA``.

        Raises :class:`~.base.WorldFailure` where the sandbox failed: nothing is known of the program then.
        """
        key = repr(job)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
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

    async def _run(self, key: str, job: Job) -> Result:
        try:
            found = await self.sandbox.run(job, self.limits)
        finally:
            del self._going[key]
        self.runs += 1
        if found.verdict is Verdict.INFRA:
            raise WorldFailure(f"the sandbox failed: {found.detail}")
        self._kept[key] = found
        if len(self._kept) > self.remembered:
            self._kept.popitem(last=False)
        return found

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self
