"""Code at the papers' scale: programming problems, chat messages, programs of any kind."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Literal

from ...experience import Message, Split, Task
from ...sandbox import Limits, Sandbox
from ..checks import check_agent
from ..execution import Execution
from .answers import read_program, read_tests
from .library import Library, Shelves
from .problem import Check, Problem, Ran, Suite
from .prompts import told
from .running import Runner
from .world import CodeWorld, Order

REMEMBERED = 1024
"""Runs whose results are kept, each of which may hold half a MiB of output."""

_NOTHING = Problem("nothing", "", (Check("", ""),))


class Code(CodeWorld):
    """Programming problems of ``data``; ``max_tests`` bounds the tests of one message, ``cpu_s`` the CPU time of a run.

    A test of the tester's that the reference solution cannot be asked about (there is none) counts as right where the
    hidden tests hold it.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        data: Library,
        *,
        horizon: int = 4,
        order: Order = "simultaneous",
        team: Literal["pair", "solo"] = "pair",
        max_tests: int = 1,
        cpu_s: float = 10.0,
        local_share: float = 1.0,
    ) -> None:
        execution = Execution(sandbox, Limits(cpu_s=cpu_s), REMEMBERED)
        super().__init__(
            execution, horizon=horizon, order=order, team=team, max_tests=max_tests, local_share=local_share
        )
        self.data = data
        self.runner = Runner(self.execution)
        self._problem = _NOTHING

    @cached_property
    def shelves(self) -> Shelves:
        """The problems, read when first asked for."""
        return self.data.read()

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return self.shelves.draw(split, count, seed)

    def reset(self, task: Task) -> None:
        self._problem = task.data["problem"]
        self._restart(self._problem.examples)

    def observe(self, agent: str) -> list[Message]:
        check_agent(self.name, self.agents, agent)
        shown: list[tuple[Check, Ran | None]] = [
            (check, self._runs[i] if self._runs else None) for i, check in enumerate(self._suite)
        ]
        # The statement shows the examples already; here they matter once they fail.
        examples = len(self._examples)
        shown = [(check, ran) for i, (check, ran) in enumerate(shown) if i >= examples or (ran and not ran.passed)]
        return told(agent, self._problem, shown, self._program, self.max_tests)

    def _read_program(self, text: str) -> str | None:
        return read_program(text)

    def _read_tests(self, text: str) -> Suite | None:
        return read_tests(text, self.max_tests, calls=self._problem.function is not None)

    def _identity(self, check: Check) -> Check:
        return check.plain if self._problem.function is None else check

    async def _builds(self, program: str) -> bool:
        return await self.runner.builds(program)

    async def _try(self, program: str, suite: Suite) -> tuple[Ran, ...]:
        return await self.runner.runs(self._problem, program, suite)

    async def _try_hidden(self, program: str) -> tuple[Ran, ...]:
        return await self.runner.hidden(self._problem, program)

    async def _right(self, suite: Suite) -> Sequence[bool]:
        reference = self._problem.reference
        if reference is None:
            hidden = {self._identity(check) for check in self._problem.hidden}
            return [self._identity(check) in hidden for check in suite]
        return [ran.passed for ran in await self.runner.runs(self._problem, reference, suite)]

    def _problem_key(self) -> Hashable:
        return self._problem.name
