"""Demonstrators of delegation: experts, novices who slip, and flawed ones whose mistakes are systematic."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ..base import Skill
from .directory import CALL, DIGITS, HOLDERS, NONE, WORKERS, Directory, say_numbers

Replies = Sequence[tuple[str, str]]
"""Of each reply: the name and the number."""
FIRST_ONLY, EVERYBODY = 0.5, 0.85
"""Of flawed orchestrators: up to the first share they call for the first name alone, up to the second they ask a second
worker for every name, and the rest answers without a call."""


def orchestrate(directory: Directory, replies: Replies, last: bool, rng: Random, skill: Skill) -> str:
    """Experts call each name's worker, all in one message, and again where a reply has no number; then they answer.

    A novice forgets a name or takes another worker, and mistakes a number.  A flawed demonstrator calls for the first
    name alone, or calls too many, or nobody, and answers with the first reply for every name.
    """
    heard = {name: number for name, number in replies if number != NONE}
    calls = [(name, HOLDERS[name]) for name in directory.asked]
    missing = [call for call in calls if call[0] not in heard]
    if skill == "flawed":
        return _flawed(directory, replies, last, calls, rng)
    if missing and not last:
        if skill == "novice":
            missing = _slip(missing, rng)
        return " ".join([CALL, *(word for call in missing for word in call)])
    numbers = [heard.get(name) or rng.choice(DIGITS) for name in directory.asked]
    if skill == "novice":
        numbers[rng.randrange(len(numbers))] = rng.choice(DIGITS)
    return say_numbers(directory.asked, numbers)


def _slip(calls: list[tuple[str, str]], rng: Random) -> list[tuple[str, str]]:
    place = rng.randrange(len(calls))
    if len(calls) > 1 and rng.random() < 0.5:
        return [*calls[:place], *calls[place + 1 :]]
    return [*calls[:place], (calls[place][0], rng.choice(WORKERS)), *calls[place + 1 :]]


def _flawed(directory: Directory, replies: Replies, last: bool, calls: Sequence[tuple[str, str]], rng: Random) -> str:
    kind = rng.random()
    if not replies and not last and kind < EVERYBODY:
        if kind < FIRST_ONLY:
            calls = calls[:1]
        else:
            others = [(name, rng.choice([each for each in WORKERS if each != worker])) for name, worker in calls]
            calls = [call for pair in zip(calls, others, strict=True) for call in pair]
        return " ".join([CALL, *(word for call in calls for word in call)])
    number = replies[0][1] if replies and replies[0][1] != NONE else rng.choice(DIGITS)
    return say_numbers(directory.asked, [number] * len(directory.asked))


def work(directory: Directory, worker: str, names: Sequence[str], rng: Random, skill: Skill) -> str:
    """Experts say the numbers of the names; a novice mistakes one, a flawed worker says its first for every name."""
    known = directory.notes(worker)
    numbers = [known.get(name, NONE) for name in names]
    if skill == "novice":
        numbers[rng.randrange(len(numbers))] = rng.choice(DIGITS)
    elif skill == "flawed":
        numbers = [next(iter(known.values()), NONE)] * len(names)
    return say_numbers(names, numbers)
