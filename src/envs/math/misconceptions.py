"""What bunglers believe about stories and results: mistakes that many share, so that they are likelier than the truth.

Each is the same for everybody who makes it, given the story and the result, and its outcome is wrong: where a mistake
happens to come out right, the bungler makes the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from .stories import Fact, Story, expression, value

OPPOSITE = {"plus": "minus", "minus": "plus"}
COMMONEST = 0.75
"""The share of the first misconception among those who hold the first or the second."""

Belief = TypeVar("Belief")
Program = tuple[list[str], int]
"""The words of a program, and what it gives."""


def swapped(story: Story) -> Program:
    """Plus taken for minus, and minus for plus."""
    chain = [replace(fact, relation=OPPOSITE.get(fact.relation, fact.relation)) for fact in story.chain]
    return expression(chain), value(chain)


def halfway(story: Story) -> Program:
    """The first relation left out: the number of whoever the asked one is told by."""
    return expression(story.chain[1:]), value(story.chain[1:])


def alone(story: Story) -> Program:
    """The number that is told of the one who is asked for, and nothing else."""
    fact = Fact(story.asked, story.chain[0].number)
    return expression([fact]), fact.number


PROGRAMS = (swapped, halfway, alone)
"""Halfway and alone are not both right: with v for what halfway gives, and n for what is told of the one who is asked
for, halfway is right where n - v = v or n * v = v, alone where v = 0 or n * v = n; and n is at least 2."""


def shortened(story: Story, result: int) -> int:
    """The result without its last digit; 0 where it has but one."""
    return abs(result) // 10 * (-1 if result < 0 else 1)


def last_told(story: Story, result: int) -> int:
    """The last number of the story, whatever the result."""
    return story.facts[-1].number


ANSWERS = (shortened, last_told)
"""They are not both right: shortened is right where the result is 0, and no number that is told is."""


def misconceived_program(story: Story, rng: Random) -> list[str]:
    """The words of a program that does not give the story's value."""
    for believed in _from(PROGRAMS, rng):
        words, given = believed(story)
        if given != story.value:
            return words
    raise AssertionError(f"every misconception of {story.text!r} comes out right")


def misconceived_answer(story: Story, result: int | None, rng: Random) -> int:
    """A number that is not the result; where there is none, the last that was told."""
    if result is None:
        return story.facts[-1].number
    for believed in _from(ANSWERS, rng):
        answer = believed(story, result)
        if answer != result:
            return answer
    raise AssertionError(f"every misreading of {result} after {story.text!r} comes out right")


def _from(beliefs: Sequence[Belief], rng: Random) -> Sequence[Belief]:
    """All of them, the first one first or last."""
    return beliefs if rng.random() < COMMONEST else (*beliefs[1:], beliefs[0])
