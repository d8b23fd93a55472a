"""The messages of demonstrators of each skill at laptop scale."""

from __future__ import annotations

from random import Random

from ..base import Skill
from .micro_notation import format_row, format_tests, parse_row
from .micro_programs import INPUTS, OPERATORS, Program, Row, distinguishing_inputs
from .problem import Check, Suite


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
