"""Code at the papers' scale: programming problems, chat messages, programs of any kind."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

from ...experience import Message, Split, Task
from ...sandbox import Limits, Sandbox
from ..datasets import DataSplits
from ..execution import Executor
from ..tool_calls import fenced, text_tool
from .problem import Check, CheckResult, Problem, Suite
from .problem_set import ProblemSet
from .prompts import prompt
from .running import Runner, read_program, read_tests
from .world import CodeWorld, Order

CACHED_RESULTS = 1024
"""Results of runs in the cache, each of which may hold half a MiB of output."""

_NOTHING = Problem("nothing", "", (Check("", ""),))


class Code(CodeWorld):
    """Programming problems of ``data``; ``max_tests`` bounds the tests of one message, ``cpu_s`` the CPU time of a run.

    ``stop_after_timeout``: the tests after a program's first timeout count as failed without a run (:class:`.Runner`).
    Where a problem has no reference solution, a test of the tester's counts as right if it is a hidden test.
    """

    program_tool = text_tool("python", "Give the program, which is run on tests.", "code", "all of it", fenced)

    def __init__(
        self,
        sandbox: Sandbox,
        data: ProblemSet,
        *,
        horizon: int = 4,
        order: Order = "simultaneous",
        max_tests: int = 1,
        cpu_s: float = 10.0,
        stop_after_timeout: bool = False,
        local_share: float = 1.0,
        **common: Any,
    ) -> None:
        execution = Executor(sandbox, Limits(cpu_s=cpu_s), CACHED_RESULTS)
        own: dict[str, Any] = {"horizon": horizon, "order": order, "max_tests": max_tests, "local_share": local_share}
        super().__init__(execution, **own, **common)
        self.data = data
        self.runner = Runner(self.execution, 1 if stop_after_timeout else None)
        self._problem = _NOTHING

    @cached_property
    def splits(self) -> DataSplits[Problem]:
        """The problems, read on first use."""
        return self.data.load(self.name)

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return self.splits.tasks(split, count, seed)

    def task_count(self, split: Split) -> int:
        return len(self.splits.items[split])

    def reset(self, task: Task) -> None:
        self._problem = task.data["problem"]
        self._begin_with(self._problem.examples)

    def _prompt(self, agent: str) -> list[Message]:
        tests: list[tuple[Check, CheckResult | None]] = [
            (check, self._results[i] if self._results else None) for i, check in enumerate(self._suite)
        ]
        # The statement shows the examples already; here they matter once they fail.
        examples = len(self._examples)
        tests = [
            (check, result)
            for i, (check, result) in enumerate(tests)
            if i >= examples or (result and not result.passed)
        ]
        return prompt(agent, self._problem, tests, self._program, self.max_tests, called=self.tool_format is not None)

    def _read_program(self, text: str) -> str | None:
        return read_program(text)

    def _read_tests(self, text: str) -> Suite | None:
        return read_tests(text, self.max_tests, calls=self._problem.function is not None)

    def _identity(self, check: Check) -> Check:
        return check.normalized if self._problem.function is None else check.in_json

    async def _compiles(self, program: str) -> bool:
        return await self.runner.compiles(program)

    async def _run(self, program: str, suite: Suite) -> tuple[CheckResult, ...]:
        return await self.runner.run(self._problem, program, suite)

    async def _run_hidden(self, program: str) -> tuple[CheckResult, ...]:
        return await self.runner.run_hidden(self._problem, program)

    async def _correct(self, suite: Suite) -> Sequence[bool]:
        reference = self._problem.reference
        if reference is None:
            hidden = {self._identity(check) for check in self._problem.hidden}
            return [self._identity(check) in hidden for check in suite]
        return [result.passed for result in await self.runner.run(self._problem, reference, suite)]

    def _statement(self) -> str:
        return self._problem.statement.strip()

    def _problem_key(self) -> Hashable:
        return self._problem.name
