"""Little stories of numbers: what the laptop's mathematics asks.

A story tells how numbers follow from each other, back to one that stands alone, and asks for the first of the chain:
"cid:= 3 times bob ; bob:= 17 plus ann ; ann:= 34 ; ask cid" asks for 3 * (17 + 34).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from random import Random

from ...experience import Task
from ..grid.board import split_of

NAMES: tuple[str, ...] = tuple("ann bob cid dan eva fay gus hal".split())
DEFINED: tuple[str, ...] = tuple(f"{name}:=" for name in NAMES)
LARGEST = 99
"""The numbers that are told are at most so large, and words of their own."""
RELATIONS: dict[str, str] = {"plus": "+", "minus": "-", "times": "*"}


@dataclass(frozen=True)
class Fact:
    """``name`` is ``number``, or ``number`` plus, minus or times ``other``."""

    name: str
    number: int
    relation: str = ""
    other: str = ""

    @property
    def words(self) -> list[str]:
        return [f"{self.name}:=", str(self.number), *([self.relation, self.other] if self.relation else [])]


@dataclass(frozen=True)
class Story:
    """``facts`` in the order of the telling, and the name that is asked for."""

    facts: tuple[Fact, ...]
    asked: str

    @property
    def text(self) -> str:
        """As the agents are told it."""
        return " ".join([word for fact in self.facts for word in (*fact.words, ";")] + ["ask", self.asked])

    def fact(self, name: str) -> Fact:
        """What is told of ``name``."""
        return next(fact for fact in self.facts if fact.name == name)

    @property
    def chain(self) -> list[Fact]:
        """The facts that matter, from what is asked to the number that stands alone."""
        found = [self.fact(self.asked)]
        while found[-1].relation:
            found.append(self.fact(found[-1].other))
        return found

    @property
    def value(self) -> int:
        """What is asked for."""
        return value(self.chain)


def value(chain: Sequence[Fact]) -> int:
    """The number at the head of ``chain``."""
    found = chain[-1].number
    for fact in reversed(chain[:-1]):
        found = {"plus": fact.number + found, "minus": fact.number - found, "times": fact.number * found}[fact.relation]
    return found


def digits(number: int) -> list[str]:
    """A number in words: its sign, if it is negative, and its digits."""
    return [*str(number)]


def expression(chain: Sequence[Fact]) -> list[str]:
    """The head of ``chain`` in Python, every number by its name: ( cid:= 3 * ( bob:= 17 + ( ann:= 34 ) ) )."""
    words: list[str] = []
    for fact in chain:
        words += ["(", f"{fact.name}:=", str(fact.number), *([RELATIONS[fact.relation]] if fact.relation else [])]
    return words + [")"] * len(chain)


def told(text: str) -> Story:
    """The story that ``text`` tells; the reverse of :attr:`Story.text`."""
    body, _, asked = text.rpartition(" ask ")
    facts = []
    for sentence in body.removesuffix(" ;").split(" ; "):
        name, number, *related = sentence.split()
        facts.append(Fact(name.removesuffix(":="), int(number), *related))
    return Story(tuple(facts), asked)


def draw(links: int, spare: int, rng: Random) -> Story:
    """A story of a chain of ``links`` relations, in their order, and ``spare`` facts anywhere that do not matter."""
    names = rng.sample(NAMES, links + 1 + spare)
    chain, others = names[: links + 1], names[links + 1 :]
    facts = [_related(name, other, rng) for name, other in pairwise(chain)]
    facts.append(Fact(chain[-1], rng.randint(10, LARGEST)))
    for name in others:
        facts.insert(rng.randint(0, len(facts)), _related(name, rng.choice(chain), rng))
    return Story(tuple(facts), chain[0])


def _related(name: str, other: str, rng: Random) -> Fact:
    relation = rng.choice(list(RELATIONS))
    return Fact(name, rng.randint(2, 9) if relation == "times" else rng.randint(10, LARGEST), relation, other)


def task(name: str, story: Story) -> Task:
    """A story as a task.  It is known by the arithmetic that it asks for, whoever is in it and however it is told."""
    form = " ".join(word for word in expression(story.chain) if word not in DEFINED)
    digest = blake2b(form.encode(), digest_size=6).hexdigest()
    return Task(f"{name}-{digest}", split_of(digest), {"question": story.text, "answer": str(story.value)})


def vocabulary() -> list[str]:
    """Every word of stories and arithmetic."""
    numbers = [str(number) for number in range(LARGEST + 1)]
    return [*numbers, *RELATIONS, *RELATIONS.values(), "(", ")", ";", "ask", *NAMES, *DEFINED]
