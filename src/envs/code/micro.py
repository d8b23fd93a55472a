"""Code at laptop scale: the coder writes a micro-program whose operators only the tester knows.

The tester is told the program in words; it writes tests, and nothing else of its message reaches the coder.  The coder
is told the shape of the program, with blanks for the two operators, and writes a Python expression.  So the tester must
compute what the program gives on inputs that tell it from its rivals, and the coder must find the operators that give
it.  An agent alone is told both.

Programs are run in the sandbox, each once, on every input that a test may have and on the hidden ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from random import Random
from typing import Literal

from ...experience import Message, Split, Task
from ...sandbox import Call, Job, JsonValue, Limits, Sandbox, Verdict, equal_values
from ..base import Skill
from ..checks import check_agent
from ..drawing import different
from ..execution import Execution
from ..grid.board import split_of
from .micro_demonstrations import demonstrated_program, demonstrated_tests, passes
from .micro_notation import read_expression, read_tests, row_of, written, written_row
from .micro_programs import HIDDEN, INPUTS, LARGEST_OUTPUT, NAMES, OPERATORS, SMALLEST_OUTPUT, Program, Row
from .problem import Check, Ran, Suite
from .world import CODER, SOLO, TESTER, CodeWorld, Order

LIMITS = Limits(cpu_s=1.0, idle_s=1.0)
REMEMBERED = 16_384
"""Programs whose outputs are kept: more than there are micro-programs."""

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
"""Gives the expression's values, in the process of the program; what is expected is not there."""


class MicroCode(CodeWorld):
    """Programs of three variables and two operators; ``max_tests`` bounds the tests of one message."""

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        horizon: int = 2,
        order: Order = "sequential",
        team: Literal["pair", "solo"] = "pair",
        max_tests: int = 2,
        local_share: float = 0.2,
    ) -> None:
        execution = Execution(sandbox, LIMITS, REMEMBERED)
        super().__init__(
            execution, horizon=horizon, order=order, team=team, max_tests=max_tests, local_share=local_share
        )
        self._goal = Program(("a", "b", "c"), ("+", "+"), True)

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return different(self.name, split, count, seed, self._draw, patience=2000)

    def _draw(self, rng: Random) -> Task:
        """Known by how it is written; its split is decided by what it computes."""
        first, second, third = rng.sample(NAMES, 3)
        program = Program(
            (first, second, third), (rng.choice([*OPERATORS]), rng.choice([*OPERATORS])), rng.random() < 0.5
        )
        written_as = blake2b(program.text.encode(), digest_size=6).hexdigest()
        return Task(f"{self.name}-{written_as}", split_of(program.digest), {"program": program})

    def reset(self, task: Task) -> None:
        self._goal = task.data["program"]
        self._restart(())

    # ---- what is seen ---------------------------------------------------------------------------------------------

    def observe(self, agent: str) -> list[Message]:
        check_agent(self.name, self.agents, agent)
        words: list[str] = []
        if agent != CODER:
            words += ["spec", self._goal.spoken]
        if agent != TESTER:
            words += ["shape", self._goal.shape, "mine", self._program or "none"]
        if agent != SOLO:
            words += ["tests", written(self._suite, self._runs)]
        return [{"role": "system", "content": f"{agent} {self.name}"}, {"role": "user", "content": " ".join(words)}]

    # ---- what is said ---------------------------------------------------------------------------------------------

    def _read_program(self, text: str) -> str | None:
        return read_expression(text)

    def _read_tests(self, text: str) -> Suite | None:
        return read_tests(text, self.max_tests)

    async def _builds(self, program: str) -> bool:
        return bool(await self._values(program))

    async def _try_hidden(self, program: str) -> tuple[Ran, ...]:
        return await self._try(program, self._hidden())

    def _hidden(self) -> Suite:
        return tuple(Check(written_row(row), str(self._goal(row))) for row in HIDDEN)

    async def _try(self, program: str, suite: Suite) -> tuple[Ran, ...]:
        gave = await self._values(program)
        return tuple(_compared(gave.get(row_of(check.given)), int(check.expected)) for check in suite)

    async def _values(self, program: str) -> dict[Row, JsonValue]:
        """What ``program`` gives, by input; nothing where it is no Python, or does not come to an end."""
        result = await self.execution.result(Job(APPLY, entry=Call("apply", [program, self._goal.names])))
        values = result.value
        if result.verdict is not Verdict.OK or not isinstance(values, list) or len(values) != len(ROWS):
            return {}
        return dict(zip(ROWS, values, strict=True))

    async def _right(self, suite: Suite) -> Sequence[bool]:
        return [passes(self._goal, (check,)) for check in suite]

    async def _worth(self, suite: Suite) -> float:
        """How many more of the hidden tests pass, on average, with any program of the shape that passes ``suite`` than
        with any program of the shape: what a coder could make of the tests."""
        rivals = self._goal.rivals
        return max(0.0, self._share_of([rival for rival in rivals if passes(rival, suite)]) - self._share_of(rivals))

    def _share_of(self, programs: Sequence[Program]) -> float:
        """The share of the hidden tests that ``programs`` pass on average."""
        passed = [program(row) == self._goal(row) for program in programs for row in HIDDEN]
        return sum(passed) / len(passed) if passed else 0.0

    def _problem_key(self) -> Hashable:
        return self._goal

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """See :mod:`.micro_demonstrations`.  An expert alone writes the program that it is told."""
        if agent == TESTER:
            return demonstrated_tests(self._goal, self.max_tests, rng, skill)
        if agent == SOLO and skill == "expert":
            return self._goal.text
        suite = self._hidden() if agent == SOLO else self._suite  # who is told the program knows its values
        return demonstrated_program(self._goal, suite, rng, skill)


def _compared(value: JsonValue, expected: int) -> Ran:
    """``value`` is anything that the program's process wrote."""
    shown = str(value) if type(value) is int and SMALLEST_OUTPUT <= value <= LARGEST_OUTPUT else "none"
    return Ran(value is not None, equal_values(value, expected), shown)
