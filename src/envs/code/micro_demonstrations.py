"""What demonstrators of each skill say at laptop scale."""

from __future__ import annotations

from random import Random

from ..base import Skill
from .micro_notation import row_of, written, written_row
from .micro_programs import INPUTS, OPERATORS, Program, Row, telling
from .problem import Check, Suite


def passes(program: Program, suite: Suite) -> bool:
    """Whether ``program`` gives what the tests expect."""
    return all(program(row_of(check.given)) == int(check.expected) for check in suite)


def demonstrated_tests(program: Program, most: int, rng: Random, skill: Skill) -> str:
    """A message of the tester.

    Experts give inputs that tell the program from its rivals, in one test or two, and compute right.  Novices give any
    inputs and have the output of a rival one time in three.  Bunglers give small inputs, and mostly the output of a
    rival.
    """
    if skill == "bungler":
        rows: list[Row] = [(rng.randint(1, 3), rng.randint(1, 2), rng.randint(1, 2))]
    else:
        count = min(most, rng.choice((1, 1, 2)))
        rows = rng.sample(telling(program) if skill == "expert" else INPUTS, count)
    wrong = {"expert": 0.0, "novice": 1 / 3, "bungler": 0.9}[skill]
    computed = [rng.choice(program.rivals) if rng.random() < wrong else program for _ in rows]
    return written(tuple(Check(written_row(row), str(by(row))) for row, by in zip(rows, computed, strict=True)))


def demonstrated_program(program: Program, suite: Suite, rng: Random, skill: Skill) -> str:
    """A message of the coder, who knows the shape of ``program`` and the tests.

    Experts write a program that passes the tests, any if there are none, or if no program passes.  Novices have one of
    its operators right.  Bunglers write any operators.
    """
    if skill == "bungler":
        return rng.choice(program.rivals).text
    found = rng.choice([rival for rival in program.rivals if passes(rival, suite)] or program.rivals)
    if skill == "expert":
        return found.text
    first, second = found.operators
    other = rng.choice([*OPERATORS])
    guessed = (other, second) if rng.random() < 0.5 else (first, other)
    return Program(found.names, guessed, found.left).text
