"""Code at laptop scale: the coder writes a micro-program whose operators only the tester knows.

The tester sees the program in words; it writes tests, and nothing else of its message reaches the coder.  The coder
sees the shape of the program, with gaps for the two operators, and writes a Python expression.  So the tester must
compute the program's outputs on inputs that distinguish it from its rivals, and the coder must find the operators with
these outputs.  An agent alone sees both.

Programs are run in the sandbox, each once, on every input that a test may have and on the hidden ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random
from typing import Any, Literal, get_args

from ...experience import Message, Split, Task
from ...sandbox import Call, Job, JsonValue, Limits, Sandbox, Verdict, equal_values
from ..base import Skill
from ..execution import Executor
from ..setting_checks import check_choice
from ..splits import content_digest, split_of
from ..task_sampling import sample_tasks
from ..tool_calls import text_tool
from ..turns import chat
from .micro_programs import (
    HELD_OUT,
    HIDDEN,
    INPUTS,
    LARGEST_OUTPUT,
    NAMES,
    OPERATORS,
    SMALLEST_OUTPUT,
    Program,
    Row,
    demonstrate_program,
    demonstrate_tests,
    format_row,
    format_tests,
    parse_row,
    passes,
    read_expression,
    read_tests,
)
from .problem import Check, CheckResult, Suite
from .world import CODER, SOLO, TESTER, CodeWorld, Order

SplitBy = Literal["function", "structure"]

LIMITS = Limits(cpu_s=1.0, idle_s=1.0)

ROWS: tuple[Row, ...] = (*INPUTS, *HIDDEN)

APPLY = f"""
def apply(text, names):
    code, values = compile(text, "program", "eval"), []
    for row in {ROWS}:
        try:
            value = eval(code, dict(zip(names, row)))
            values.append(value if type(value) is int else None)
        except (ArithmeticError, NameError, TypeError):
            values.append(None)
    return values
"""
"""Computes the expression's values, in the process of the program; the expected outputs are not there."""


class MicroCode(CodeWorld):
    """Programs of three variables and two operators; ``max_tests`` bounds the tests of one message.

    ``split``: the split of a program is decided by the ``function`` that it computes, or by its ``structure`` (see
    :data:`~.micro_programs.HELD_OUT`), so that no structure of a held-out program occurs in training.
    """

    program_tool = text_tool("write", "Give the program.", "expression", "its words, separated by blanks")

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        horizon: int = 2,
        order: Order = "sequential",
        max_tests: int = 2,
        local_share: float = 0.2,
        split: SplitBy = "function",
        **common: Any,
    ) -> None:
        check_choice(self.name, "split", split, get_args(SplitBy))
        own: dict[str, Any] = {"horizon": horizon, "order": order, "max_tests": max_tests, "local_share": local_share}
        super().__init__(Executor(sandbox, LIMITS), **own, **common)
        self.split_by = split
        self._goal = Program(("a", "b", "c"), ("+", "+"), True)

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return sample_tasks(self.name, split, count, seed, self._draw, max_rejections=2000)

    def _draw(self, rng: Random) -> Task:
        """Its id is a digest of its text."""
        first, second, third = rng.sample(NAMES, 3)
        program = Program(
            (first, second, third), (rng.choice([*OPERATORS]), rng.choice([*OPERATORS])), rng.random() < 0.5
        )
        by_structure = HELD_OUT.get(program.structure, "train")
        split = split_of(program.digest) if self.split_by == "function" else by_structure
        return Task(f"{self.name}-{content_digest(program.text)}", split, {"program": program})

    def reset(self, task: Task) -> None:
        self._goal = task.data["program"]
        self._begin_with(())

    # ---- prompts --------------------------------------------------------------------------------------------------

    def _prompt(self, agent: str) -> list[Message]:
        words: list[str] = []
        if agent != CODER:
            words += ["spec", self._goal.spec]
        if agent != TESTER:
            words += ["shape", self._goal.shape, "mine", self._program or "none"]
        if agent != SOLO:
            words += ["tests", format_tests(self._suite, self._results)]
        return chat(f"{agent} {self.name}", " ".join(words))

    # ---- messages -------------------------------------------------------------------------------------------------

    def _read_program(self, text: str) -> str | None:
        return read_expression(text)

    def _read_tests(self, text: str) -> Suite | None:
        return read_tests(text, self.max_tests)

    async def _compiles(self, program: str) -> bool:
        return bool(await self._values(program))

    async def _run_hidden(self, program: str) -> tuple[CheckResult, ...]:
        return await self._run(program, self._hidden())

    def _hidden(self) -> Suite:
        return tuple(Check(format_row(row), str(self._goal(row))) for row in HIDDEN)

    async def _run(self, program: str, suite: Suite) -> tuple[CheckResult, ...]:
        values = await self._values(program)
        return tuple(_compare(values.get(parse_row(check.input)), int(check.expected)) for check in suite)

    async def _values(self, program: str) -> dict[Row, JsonValue]:
        """The values of ``program`` by input; none where it is no Python, or does not come to an end."""
        result = await self.execution.result(Job(APPLY, entry=Call("apply", [program, self._goal.names])))
        values = result.value
        if result.verdict is not Verdict.OK or not isinstance(values, list) or len(values) != len(ROWS):
            return {}
        return dict(zip(ROWS, values, strict=True))

    async def _correct(self, suite: Suite) -> Sequence[bool]:
        return [passes(self._goal, (check,)) for check in suite]

    async def _value_of(self, suite: Suite) -> float:
        """The use of the tests to a coder: the share of hidden tests that a program of the shape passes on average if
        it passes ``suite``, less the share without that condition."""
        rivals = self._goal.rivals
        return max(0.0, self._share_of([rival for rival in rivals if passes(rival, suite)]) - self._share_of(rivals))

    def _share_of(self, programs: Sequence[Program]) -> float:
        """The share of the hidden tests that ``programs`` pass on average."""
        correct = [program(row) == self._goal(row) for program in programs for row in HIDDEN]
        return sum(correct) / len(correct) if correct else 0.0

    def _problem_key(self) -> Hashable:
        return self._goal

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """See :mod:`.micro_programs`.  An expert alone writes the program that it sees."""
        if agent == TESTER:
            return demonstrate_tests(self._goal, self.max_tests, rng, skill)
        if agent == SOLO and skill == "expert":
            return self._goal.text
        suite = self._hidden() if agent == SOLO else self._suite  # an agent alone sees the program, and so its values
        return demonstrate_program(self._goal, suite, rng, skill)


def _compare(value: JsonValue, expected: int) -> CheckResult:
    """``value`` is anything that the program's process wrote."""
    output = str(value) if type(value) is int and SMALLEST_OUTPUT <= value <= LARGEST_OUTPUT else "none"
    return CheckResult(value is not None, equal_values(value, expected), output)
