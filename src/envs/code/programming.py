"""Code at the papers' scale: programming problems, prompts of coder and tester, programs of any kind."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, Final

from ...experience import Message, Split, Task
from ...sandbox import Limits, Sandbox
from ..datasets import DataSplits
from ..execution import Executor
from ..fences import in_fence
from ..tool_calls import fenced, text_tool
from ..turns import chat
from .problem import Check, CheckResult, Problem, Suite
from .problem_set import ProblemSet
from .running import INPUT, OUTPUT, Runner, read_program, read_tests
from .world import CodeWorld, Order

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
        own: dict[str, Any] = {"horizon": horizon, "order": order, "max_tests": max_tests, "local_share": local_share}
        super().__init__(Executor(sandbox, Limits(cpu_s=cpu_s)), **own, **common)
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


ROLES: Final = {
    "coder": "You are the programmer of a team of two. Your team-mate, the tester, writes tests for your program.",
    "tester": "You are the tester of a team of two. Your team-mate, the coder, writes a program for the problem. Your "
    "tests show where it is wrong, so they must be right themselves.",
    "solo": "You are a programmer.",
}

_PROGRAM: Final = "Think briefly, then give the whole program in one fenced block:\n\n```python\n# your program\n```"


def prompt(
    agent: str,
    problem: Problem,
    tests: Sequence[tuple[Check, CheckResult | None]],
    program: str | None,
    max_tests: int,
    *,
    called: bool = False,
) -> list[Message]:
    """The prompt of ``agent``; ``tests`` come with the program's result on each, where it was run.
    ``called``: a program is the argument of a call."""
    parts = ["# Problem", problem.statement.strip()]
    if problem.starter and problem.starter.strip() not in problem.statement:
        parts += ["Begin with:", in_fence(problem.starter.rstrip(), "python")]
    if program is not None:
        parts += [
            "# The program so far" if agent == "tester" else "# Your program so far",
            in_fence(program.rstrip("\n"), "python"),
        ]
    if tests:
        parts += ["# Tests so far", *(_test(check, result) for check, result in tests)]
    request = _tests_request(problem, max_tests) if agent == "tester" else _program_request(problem, program, called)
    return chat(ROLES[agent], "\n\n".join([*parts, "# Your task", request]))


def _program_request(problem: Problem, program: str | None, called: bool) -> str:
    if problem.function is None:
        request = "Write a Python program that reads standard input and prints the answer to standard output."
    else:
        request = f"Write Python code that defines `{problem.function.replace('Solution.', 'class Solution with ')}`."
    again = "" if program is None else " A test may be wrong: where you are sure of your program, give it again."
    return f"{request}{again}\n\n{'Give the whole program.' if called else _PROGRAM}"


def _tests_request(problem: Problem, max_tests: int) -> str:
    kind = (
        "the input as the program reads it, and exactly what it must print"
        if problem.function is None
        else f"the arguments of `{problem.function}` as a JSON list, and its value as JSON"
    )
    number = "one test" if max_tests == 1 else f"1 to {max_tests} tests"
    return (
        f"Write {number} that a wrong program would fail: {kind}. They take the place of your former ones. Work the "
        f"output out step by step before you state it. Write each test so:\n\n{INPUT}\n```\ninput\n```\n{OUTPUT}\n"
        "```\noutput\n```"
    )


def _test(check: Check, result: CheckResult | None) -> str:
    lines = ["Input:", in_fence(check.input.rstrip("\n")), "Expected output:", in_fence(check.expected.rstrip("\n"))]
    if result is not None:
        lines += (
            ["The program gives the same."]
            if result.passed
            else ["The program gives:", in_fence(result.output.rstrip("\n"))]
        )
    return "\n".join(lines)
