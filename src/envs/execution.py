"""How worlds run what agents write: in the sandbox, each program once."""

from __future__ import annotations

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

    async def result(self, job: Job) -> Result:
        """What came of ``job``, never ``INFRA``.

        Raises :class:`~.base.WorldFailure` where the sandbox failed: nothing is known of the program then.
        """
        key = repr(job)
        if key not in self._kept:
            found = await self.sandbox.run(job, self.limits)
            self.runs += 1
            if found.verdict is Verdict.INFRA:
                raise WorldFailure(f"the sandbox failed: {found.detail}")
            self._kept[key] = found
            if len(self._kept) > self.remembered:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    async def open(self) -> dict[str, bool | int | str]:
        """Start the sandbox; what protects the trainer.  Raises :class:`..sandbox.SandboxUnavailable`."""
        await self.sandbox.run(Job(), self.limits)
        described = self.sandbox.describe()
        return {name: value for name, value in described.items() if isinstance(value, bool | int | str)}

    async def close(self) -> None:
        """End the sandbox's workers."""
        await self.sandbox.close()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self
