"""Micro-programs: Python expressions of three variables and two operators, and the same in words.

The notation of tests and expressions at laptop scale: words separated by blanks.

A message of tests is ``VALUE VALUE VALUE is VALUE`` (the inputs in the order in which the program names its variables,
then the output), several separated by ``;``.  An expression is Python made of variables, numbers, operators and
brackets.

The messages of demonstrators of each skill at laptop scale.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random

from ...experience import Split
from ..base import Skill
from ..splits import content_digest
from .problem import Check, CheckResult, Suite, contradictory

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
