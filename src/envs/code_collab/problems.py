"""Code collaboration on published problems: HumanEval, CoopHumanEval, MBPP."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, Final

from ...experience import Message, Split, Task
from ...sandbox import Limits, PlainValue, Sandbox
from ..code.comparison import shown
from ..code.problem import Check, CheckResult, Problem
from ..code.problem_set import ProblemSet
from ..code.running import Runner
from ..datasets import DataSplits
from ..execution import Executor
from ..turns import Order
from .expert import Edits, Expert, question
from .feedback import Report, UsageRule, feedback_lines
from .world import SOLO, CollabWorld, TurnReward, program_of

MAX_TIMEOUTS: Final = 3
"""Timeouts of a program after which its other tests are not run, as published."""

_RULES: Final = (
    "Answer with Python code alone: no explanation, no Markdown, no tests, no example, no text before or after it."
)
_NOTHING = Problem("nothing", "", (Check("[]", "0"),), function="nothing")


class CodeCollab(CollabWorld):
    """Problems of ``data``, each a function with tests.  ``cpu_s`` is the CPU time of a test.

    ``expert`` is the model of ``feedback=expert``.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        data: ProblemSet,
        *,
        turn_reward: TurnReward = "points",
        usage: UsageRule = "statement",
        useful_aux: bool = False,
        feedback_tests: int = 1,
        expert: Expert | None = None,
        cpu_s: float = 10.0,
        **common: Any,
    ) -> None:
        own: dict[str, Any] = {"useful_aux": useful_aux, "feedback_tests": feedback_tests}
        execution = Executor(sandbox, Limits(cpu_s=cpu_s, idle_s=cpu_s))
        super().__init__(execution, turn_reward=turn_reward, usage=usage, **own, **common)
        if (self.feedback == "expert") != (expert is not None):
            raise ValueError(
                "env.feedback=expert asks a model: set env.expert with the url of its server and its name"
                if expert is None
                else f"env.expert is for env.feedback=expert, which is {self.feedback}"
            )
        self.data, self.expert = data, expert
        self.runner = Runner(self.execution, MAX_TIMEOUTS)
        self._problem = _NOTHING

    # ---- tasks ----------------------------------------------------------------------------------------------------

    @cached_property
    def splits(self) -> DataSplits[Problem]:
        """The problems, read on first use."""
        return self.data.load(self.name)

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return self.splits.tasks(split, count, seed)

    def reset(self, task: Task) -> None:
        self._begin()
        self._problem = task.data["problem"]
        if not self._problem.function or "." in self._problem.function:
            raise ValueError(f"env.data: {self._problem.name} asks for no function of its own name")

    @property
    def entry(self) -> str:  # type: ignore[override]
        return self._problem.function or ""

    # ---- prompts --------------------------------------------------------------------------------------------------

    def _prompt(self, agent: str) -> list[Message]:
        task = f"Your task:\n{_task(agent, self.entry, self.order)}\n{_RULES}"
        parts = [f"Problem:\n{self._problem.statement.strip()}", task]
        if self._report is not None:
            parts += self._feedback(agent, self._report)
        elif self._shown.get(agent) is not None:
            parts.append(f"Your draft:\n{self._shown[agent] or '(none could be read)'}")
        partners = self._partners(agent)
        if partners is not None:
            parts.append(f"Your partner's function:\n{partners or '(none could be read)'}")
            parts += ["Write yours again, so that the two fit."] if self.order == "discussion" else []
        return [{"role": "user", "content": "\n\n".join(parts)}]

    def _feedback(self, agent: str, report: Report) -> list[str]:
        source = {"aux": report.aux, "main": report.main}.get(agent, program_of(report.aux, report.main))
        parts = [f"Your code of the turn before:\n{source or '(none could be read)'}"]
        lines = feedback_lines(self.feedback, report, (agent != "main", agent != "aux"), self.feedback_tests)
        parts += ["\n".join(lines)] if lines else []
        for name, edits in zip(("aux", self.entry), self._edits, strict=True):
            if edits and (agent == SOLO or (agent == "aux") == (name == "aux")):
                parts.append(f"An expert's advice on {name}:\n{edits}")
        return [*parts, "Write it again, better if it can be."]

    async def _propose(self, report: Report) -> Edits:
        if self.expert is None:
            return "", ""
        return await self.expert.edits(question(self._problem.statement, program_of(report.aux, report.main)))

    # ---- programs -------------------------------------------------------------------------------------------------

    async def _run(self, programs: Sequence[str]) -> Sequence[tuple[CheckResult, ...]]:
        runs = (self.runner.run_hidden(self._problem, f"import math\n{program}") for program in programs)
        return await asyncio.gather(*runs)

    def _statement(self) -> str:
        return self._problem.statement.strip()

    def _tests(self) -> tuple[str, ...]:
        calls = [_in_words(self.entry, check) for check in self._problem.hidden]
        scripted = self._problem.script is not None and not self.runner.leaves_out_script(self._problem)
        return (*calls, "the test script") if scripted else tuple(calls)

    def _arguments(self, test: int) -> list[PlainValue] | None:
        if test >= len(self._problem.hidden):
            return None
        check = self._problem.hidden[test]
        arguments, named = check.rule.arguments(check.input)
        return None if named else arguments

    def _problem_key(self) -> Hashable:
        return self._problem.name

    async def close(self) -> None:
        await super().close()
        if self.expert is not None:
            await self.expert.close()


def _in_words(function: str, check: Check) -> str:
    """The call of a test and its value."""
    args, kwargs = check.rule.arguments(check.input)
    values = [*(shown(value, check.rule) for value in args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return f"{function}({', '.join(values)}) is {shown(check.rule.value(check.expected), check.rule)}"


def _task(agent: str, entry: str, order: Order) -> str:
    """What ``agent`` is to write.  All of it stands in the user's message, without a form to fill in: so
    Qwen2.5-Coder-0.5B keeps its role, where with the role in the system message it repeats the problem's function
    (``bench/coder_prompts.py``).
    """
    if agent == SOLO:
        return (
            "Solve this problem with two functions: a helper function `aux`, which takes arguments and returns a "
            f"value, and `{entry}`, which calls it and uses its value."
        )
    if agent == "aux":
        return (
            f"Your partner {'then ' if order == 'sequential' else ''}solves this problem by writing the function "
            f"`{entry}`. Write a helper function for it, which does a part of the work. It must be called `aux`, not "
            f"`{entry}`; it takes arguments and returns a value."
        )
    partner = "has written" if order == "sequential" else "at the same time writes"
    return (
        f"Write the function `{entry}`. Your partner {partner} a helper function `aux` for it, which does a part of "
        f"the work. Call `aux(...)` in `{entry}` and use its value; do not define it."
    )
