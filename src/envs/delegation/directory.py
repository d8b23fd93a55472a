"""The tasks of delegation, and the notation of calls and replies.

Each name has a number, which one worker alone sees: always the same worker for a name, so that a policy can know it.

Demonstrators of delegation: experts, novices who slip, and flawed ones whose mistakes are systematic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from ...experience import Task
from ..base import Skill
from ..splits import content_digest, split_of

ORCHESTRATOR = "orchestrator"
WORKERS: tuple[str, ...] = ("red", "blue", "green", "grey")
NAMES: tuple[str, ...] = tuple("ann bob cid dan eva fay gus hal".split())
HOLDERS: dict[str, str] = dict(zip(NAMES, "red blue red grey blue green green grey".split(), strict=True))
"""The worker that sees a name's number."""
DIGITS: tuple[str, ...] = tuple("0123456789")
CALL, SAY, REPLY, ASK, NONE, END = "call", "say", "reply", "ask", "none", ";"
MAX_CALLS = 8
"""Of one message."""


@dataclass(frozen=True)
class Directory:
    """The ``numbers`` of :data:`NAMES`, in their order, and the names whose numbers are asked for."""

    numbers: tuple[str, ...]
    asked: tuple[str, ...]

    def number(self, name: str) -> str:
        """Of a name."""
        return self.numbers[NAMES.index(name)]

    @property
    def answer(self) -> tuple[str, ...]:
        """The numbers of the names that are asked for, in their order."""
        return tuple(self.number(name) for name in self.asked)

    def notes(self, worker: str) -> dict[str, str]:
        """The names and numbers that ``worker`` sees."""
        return {name: self.number(name) for name in NAMES if HOLDERS[name] == worker}


def sample_task(world: str, most: int, rng: Random) -> Task:
    """A random task, which asks for 1 to ``most`` names.

    The names that are asked for and their numbers decide the split, not the other numbers or the order.
    """
    numbers = tuple(rng.choice(DIGITS) for _ in NAMES)
    asked = tuple(rng.sample(NAMES, rng.randint(1, most)))
    directory = Directory(numbers, asked)
    split = split_of(content_digest(" ".join(f"{name} {directory.number(name)}" for name in sorted(asked))))
    digest = content_digest(" ".join([*numbers, *asked]))
    return Task(f"{world}-{digest}", split, {"numbers": list(numbers), "asked": list(asked)})


def read_calls(text: str) -> tuple[tuple[str, str], ...] | None:
    """The (name, worker) of each call of "call bob blue ann red"; None where it is no call.  A repeated one counts
    once."""
    words = text.split(maxsplit=2 * MAX_CALLS + 1)
    if len(words) < 3 or words[0] != CALL or not len(words) % 2 or len(words) > 2 * MAX_CALLS + 1:
        return None
    calls = tuple(dict.fromkeys(zip(words[1::2], words[2::2], strict=True)))
    return calls if all(name in NAMES and worker in WORKERS for name, worker in calls) else None


def read_numbers(text: str, names: Sequence[str], words: Sequence[str] = DIGITS) -> tuple[str, ...] | None:
    """The numbers of "say bob 7 ann 4" for ``names``, in their order; None where it says something else."""
    say, *rest = text.split(maxsplit=2 * len(names) + 1) or [""]
    named, numbers = rest[::2], rest[1::2]
    fine = say == SAY and named == [*names] and len(numbers) == len(names) and all(n in words for n in numbers)
    return tuple(numbers) if fine else None


def say_numbers(names: Sequence[str], numbers: Sequence[str]) -> str:
    """The reverse of :func:`read_numbers`."""
    return " ".join([SAY, *(word for pair in zip(names, numbers, strict=True) for word in pair)])


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
