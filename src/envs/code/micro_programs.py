"""Micro-programs: Python expressions of three variables and two operators, and the same in words."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

from ...experience import Split
from ..splits import content_digest

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
