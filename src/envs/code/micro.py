"""Code at laptop scale: the coder writes a micro-program whose operators only the tester knows.

The tester sees the program in words; it writes tests, and nothing else of its message reaches the coder.  The coder
sees the shape of the program, with gaps for the two operators, and writes a Python expression.  So the tester must
compute the program's outputs on inputs that distinguish it from its rivals, and the coder must find the operators with
these outputs.  An agent alone sees both.

Programs are run in the sandbox, each once, on every input that a test may have and on the hidden ones.

The notation is words separated by blanks.  A message of tests is ``VALUE VALUE VALUE is VALUE`` (the inputs in the
order in which the program names its variables, then the output), several separated by ``;``.  An expression is Python
made of variables, numbers, operators and brackets.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
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
from .problem import Check, CheckResult, Suite, contradictory
from .world import CODER, SOLO, TESTER, CodeWorld, Order

Row = tuple[int, int, int]
"""Values of the three variables, in the order in which a program names them."""

NAMES = "abcdefgh"
OPERATORS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
OPERATOR_WORDS = {"+": "plus", "-": "minus", "*": "times"}
LARGEST = 5
"""Tests give the variables values from 1 to this."""

INPUTS: tuple[Row, ...] = tuple((x, y, z) for x, y, z in product(range(1, LARGEST + 1), repeat=3))
"""All inputs that a test can have."""

HIDDEN: tuple[Row, ...] = ((3, 8, 6), (7, 9, 4), (7, 9, 6), (7, 8, 6), (6, 3, 7), (9, 2, 4), (2, 5, 6), (2, 3, 9))
"""The inputs of the hidden tests, the same for every task, so that a program is run once, on all inputs.

None is an input of a test, each distinguishes all programs of a shape, and no constant is right on two of them."""

SMALLEST_OUTPUT, LARGEST_OUTPUT = 1 - LARGEST**2, LARGEST**3

Structure = tuple[tuple[str, str], bool]
"""A program without its names: the two operators, and whether the first one is applied first."""

HELD_OUT: dict[Structure, Split] = {
    (("+", "*"), True): "test",  # ( x + y ) * z
    (("*", "+"), False): "test",  # x * ( y + z ), the same function with other names
    (("*", "-"), True): "test",  # ( x * y ) - z
    (("-", "-"), True): "validation",  # ( x - y ) - z
    (("-", "+"), False): "validation",  # x - ( y + z ), the same function
    (("-", "*"), False): "validation",  # x - ( y * z )
}
"""The structures that do not occur in training under ``split=structure``; the other 12 do, and have each operator in
each place of both shapes: a held-out structure is a new combination."""


@dataclass(frozen=True)
class Program:
    """``(x op y) op z`` where ``left``, else ``x op (y op z)``; ``names`` are x, y and z."""

    names: tuple[str, str, str]
    operators: tuple[str, str]
    left: bool

    @property
    def text(self) -> str:
        """Python, its words separated by blanks."""
        return self._format(*self.operators)

    @property
    def shape(self) -> str:
        """The program without its operators."""
        return self._format("?", "?")

    @property
    def spec(self) -> str:
        """The program in words."""
        return self._format(*(OPERATOR_WORDS[op] for op in self.operators))

    def __call__(self, row: Row) -> int:
        x, y, z = row
        first, second = (OPERATORS[op] for op in self.operators)
        return second(first(x, y), z) if self.left else first(x, second(y, z))

    @property
    def rivals(self) -> list[Program]:
        """All programs of this shape, itself among them."""
        return [Program(self.names, (first, second), self.left) for first, second in product(OPERATORS, repeat=2)]

    @property
    def structure(self) -> Structure:
        return self.operators, self.left

    @property
    def digest(self) -> str:
        """Equal for programs that compute the same function of the same variables, however they are written."""
        return _digest(self)

    def _format(self, first: str, second: str) -> str:
        x, y, z = self.names
        return f"( {x} {first} {y} ) {second} {z}" if self.left else f"{x} {first} ( {y} {second} {z} )"


@cache
def _digest(program: Program) -> str:
    names = sorted(program.names)
    first, second, third = (names.index(name) for name in program.names)
    table = [program((row[first], row[second], row[third])) for row in INPUTS]
    return content_digest(repr((names, table)))


def distinguishing_inputs(program: Program) -> tuple[Row, ...]:
    """The inputs on which ``program`` differs from every rival that computes something else."""
    return _distinguishing_inputs(program.operators, program.left)


@cache
def _distinguishing_inputs(operators: tuple[str, str], left: bool) -> tuple[Row, ...]:
    program = Program(("a", "b", "c"), operators, left)
    others = [rival for rival in program.rivals if rival.digest != program.digest]
    return tuple(row for row in INPUTS if all(rival(row) != program(row) for rival in others))


def vocabulary() -> list[str]:
    """Every word of observations and messages."""
    words = "tester coder solo code spec shape mine tests none malformed got is ; ? ( )".split()
    numbers = [str(number) for number in range(SMALLEST_OUTPUT, LARGEST_OUTPUT + 1)]
    return [*words, *OPERATOR_WORDS.values(), *OPERATORS, *NAMES, *numbers]


EXPRESSION_WORDS = 11
"""Words that an expression may have; a micro-program has 7."""

_NUMBERS = {str(number): number for number in range(SMALLEST_OUTPUT, LARGEST_OUTPUT + 1)}
_INPUTS = {str(number): number for number in range(1, LARGEST + 1)}
_LEXICON = frozenset({*NAMES, *OPERATORS, *"()", *_NUMBERS})


def format_row(row: Row) -> str:
    """The input of a test."""
    return " ".join(map(str, row))


def parse_row(text: str) -> Row:
    """The reverse of :func:`format_row`."""
    x, y, z = map(int, text.split())
    return x, y, z


def format_tests(suite: Suite, results: Sequence[CheckResult] = ()) -> str:
    """Tests as a message has them, each with the program's output where it was run; "none" where there are none."""
    tests = [f"{check.input} is {check.expected}" for check in suite]
    if results:
        tests = [f"{test} got {result.output}" for test, result in zip(tests, results, strict=True)]
    return " ; ".join(tests) or "none"


def read_tests(text: str, max_tests: int) -> Suite | None:
    """The tests of a message, each once; None for anything but 1 to ``max_tests`` tests that do not contradict."""
    words = text.split()
    if len(words) % 6 != 5 or any(word != ";" for word in words[5::6]):
        return None
    tests: dict[Check, None] = {}
    for start in range(0, len(words), 6):
        test = words[start : start + 5]
        if test[3] != "is" or test[4] not in _NUMBERS or not _INPUTS.keys() >= set(test[:3]):
            return None
        tests[Check(" ".join(test[:3]), test[4])] = None
    suite = tuple(tests)
    return None if len(suite) > max_tests or contradictory(suite) else suite


def read_expression(text: str) -> str | None:
    """The words of an expression; None where one is unknown, or there are none, or too many.  It may yet be no
    Python."""
    words = text.split()
    return " ".join(words) if 0 < len(words) <= EXPRESSION_WORDS and _LEXICON.issuperset(words) else None


def passes(program: Program, suite: Suite) -> bool:
    """Whether ``program`` gives the expected outputs."""
    return all(program(parse_row(check.input)) == int(check.expected) for check in suite)


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
    :data:`HELD_OUT`), so that no structure of a held-out program occurs in training.
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

    def _statement(self) -> str:
        return self._goal.shape if self.next_agents() else f"{self._goal.shape}\n{self._goal.spec}"

    def _problem_key(self) -> Hashable:
        return self._goal

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """By :func:`demonstrate_tests` and :func:`demonstrate_program`; an expert alone writes what it sees."""
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


def demonstrate_tests(program: Program, max_tests: int, rng: Random, skill: Skill) -> str:
    """A message of the tester.

    Experts write one test or two, of inputs that distinguish the program from its rivals, with the correct output.
    Novices use any inputs, and one time in three the output of a rival.  Flawed testers use small inputs, and mostly
    the output of a rival.
    """
    if skill == "flawed":
        rows: list[Row] = [(rng.randint(1, 3), rng.randint(1, 2), rng.randint(1, 2))]
    else:
        count = min(max_tests, rng.choice((1, 1, 2)))
        rows = rng.sample(distinguishing_inputs(program) if skill == "expert" else INPUTS, count)
    wrong = {"expert": 0.0, "novice": 1 / 3, "flawed": 0.9}[skill]
    programs = [rng.choice(program.rivals) if rng.random() < wrong else program for _ in rows]
    return format_tests(tuple(Check(format_row(row), str(p(row))) for row, p in zip(rows, programs, strict=True)))


def demonstrate_program(program: Program, suite: Suite, rng: Random, skill: Skill) -> str:
    """A message of the coder, who knows the shape of ``program`` and the tests.

    Experts write a program that passes the tests, any if there are none, or if no program passes.  Novices have one of
    its operators right.  Flawed coders write any operators.
    """
    if skill == "flawed":
        return rng.choice(program.rivals).text
    passing = rng.choice([rival for rival in program.rivals if passes(rival, suite)] or program.rivals)
    if skill == "expert":
        return passing.text
    first, second = passing.operators
    guess = rng.choice([*OPERATORS])
    operators = (guess, second) if rng.random() < 0.5 else (first, guess)
    return Program(passing.names, operators, passing.left).text
