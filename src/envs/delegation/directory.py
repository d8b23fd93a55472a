"""The tasks of delegation, and the notation of calls and replies.

Each name has a number, which one worker alone sees: always the same worker for a name, so that a policy can know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from ...experience import Task
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


def vocabulary() -> list[str]:
    """Every word of observations and messages, but the world's name."""
    return [ORCHESTRATOR, *WORKERS, *NAMES, *DIGITS, CALL, SAY, REPLY, ASK, NONE, END]
