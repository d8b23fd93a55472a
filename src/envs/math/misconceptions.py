"""Systematic mistakes of flawed demonstrators: many make the same one, so that it is likelier than the right message.

A mistake depends on the story and the result alone, and its outcome is wrong: where it happens to come out right, the
demonstrator makes the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from .stories import Fact, Story, chain_value, expression

OPPOSITE = {"plus": "minus", "minus": "plus"}
FIRST_SHARE = 0.75
"""The share of the first misconception of a list; the others have the rest."""

Misconception = TypeVar("Misconception")
Program = tuple[list[str], int]
"""The words of a program, and its value."""


def swap_plus_and_minus(story: Story) -> Program:
    """Plus is taken for minus, and minus for plus."""
    chain = [replace(fact, relation=OPPOSITE.get(fact.relation, fact.relation)) for fact in story.chain]
    return expression(chain), chain_value(chain)


def skip_first_relation(story: Story) -> Program:
    """The first relation is left out: the number of the second of the chain."""
    return expression(story.chain[1:]), chain_value(story.chain[1:])


def first_number_only(story: Story) -> Program:
    """The number in the first fact of the chain, and nothing else."""
    fact = Fact(story.question, story.chain[0].number)
    return expression([fact]), fact.number


PROGRAMS = (swap_plus_and_minus, skip_first_relation, first_number_only)
"""The last two are not both right: with n for the number in the first fact and v for the second number of the chain,
skip_first_relation is right where n - v = v or n * v = v, first_number_only where v = 0 or n * v = n; and n is at least
2."""


def drop_last_digit(story: Story, result: int) -> int:
    """The result without its last digit; 0 where it has but one."""
    return abs(result) // 10 * (-1 if result < 0 else 1)


def last_number_of_story(story: Story, result: int) -> int:
    """The last number of the story, whatever the result."""
    return story.facts[-1].number


ANSWERS = (drop_last_digit, last_number_of_story)
"""They are not both right: drop_last_digit is right where the result is 0, and no number of a story is."""


def misconceived_program(story: Story, rng: Random) -> list[str]:
    """The words of a program that does not give the story's value."""
    for misconception in _shuffled(PROGRAMS, rng):
        words, value = misconception(story)
        if value != story.value:
            return words
    raise AssertionError(f"every misconception of {story.text!r} comes out right")


def misconceived_answer(story: Story, result: int | None, rng: Random) -> int:
    """A number that is not the result; where there is none, the last of the story."""
    if result is None:
        return story.facts[-1].number
    for misconception in _shuffled(ANSWERS, rng):
        answer = misconception(story, result)
        if answer != result:
            return answer
    raise AssertionError(f"every misreading of {result} after {story.text!r} comes out right")


def _shuffled(misconceptions: Sequence[Misconception], rng: Random) -> Sequence[Misconception]:
    """All of them, the first one first or last."""
    return misconceptions if rng.random() < FIRST_SHARE else (*misconceptions[1:], misconceptions[0])
