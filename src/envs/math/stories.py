"""Stories of numbers: the questions of mathematics at laptop scale.

A story says how numbers follow from each other, in a chain that ends with a plain number, and asks for the first of the
chain: "cid:= 3 times bob ; bob:= 17 plus ann ; ann:= 34 ; ask cid" asks for 3 * (17 + 34).

Systematic mistakes of flawed demonstrators: many make the same one, so that it is likelier than the right message.

A mistake depends on the story and the result alone, and its outcome is wrong: where it happens to come out right, the
demonstrator makes the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import TypeVar

from ...experience import Task
from ..splits import content_digest, split_of

NAMES: tuple[str, ...] = tuple("ann bob cid dan eva fay gus hal".split())
DEFINED: tuple[str, ...] = tuple(f"{name}:=" for name in NAMES)
LARGEST = 99
"""The largest number in a story; each is one word."""
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
    """``facts`` in the order of the text, and the name whose number is the ``question``."""

    facts: tuple[Fact, ...]
    question: str

    @property
    def text(self) -> str:
        """As the agents see it."""
        return " ".join([word for fact in self.facts for word in (*fact.words, ";")] + ["ask", self.question])

    def fact(self, name: str) -> Fact:
        """The fact about ``name``."""
        return next(fact for fact in self.facts if fact.name == name)

    @property
    def chain(self) -> list[Fact]:
        """The facts that matter, from the question to the plain number."""
        chain = [self.fact(self.question)]
        while chain[-1].relation:
            chain.append(self.fact(chain[-1].other))
        return chain

    @property
    def value(self) -> int:
        """The answer."""
        return chain_value(self.chain)


def chain_value(chain: Sequence[Fact]) -> int:
    """The number at the head of ``chain``."""
    value = chain[-1].number
    for fact in reversed(chain[:-1]):
        value = {"plus": fact.number + value, "minus": fact.number - value, "times": fact.number * value}[fact.relation]
    return value


def digits(number: int) -> list[str]:
    """A number in words: its sign, if it is negative, and its digits."""
    return [*str(number)]


def expression(chain: Sequence[Fact]) -> list[str]:
    """The head of ``chain`` in Python, every number by its name: ( cid:= 3 * ( bob:= 17 + ( ann:= 34 ) ) )."""
    words: list[str] = []
    for fact in chain:
        words += ["(", f"{fact.name}:=", str(fact.number), *([RELATIONS[fact.relation]] if fact.relation else [])]
    return words + [")"] * len(chain)


def parse_story(text: str) -> Story:
    """The story of ``text``; the reverse of :attr:`Story.text`."""
    body, _, question = text.rpartition(" ask ")
    facts = []
    for sentence in body.removesuffix(" ;").split(" ; "):
        name, number, *relation = sentence.split()
        facts.append(Fact(name.removesuffix(":="), int(number), *relation))
    return Story(tuple(facts), question)


def sample_story(links: int, spare: int, rng: Random) -> Story:
    """A random story: a chain of ``links`` relations, in order, and ``spare`` facts anywhere that do not matter."""
    names = rng.sample(NAMES, links + 1 + spare)
    chain, others = names[: links + 1], names[links + 1 :]
    facts = [_relation(name, other, rng) for name, other in pairwise(chain)]
    facts.append(Fact(chain[-1], rng.randint(10, LARGEST)))
    for name in others:
        facts.insert(rng.randint(0, len(facts)), _relation(name, rng.choice(chain), rng))
    return Story(tuple(facts), chain[0])


def _relation(name: str, other: str, rng: Random) -> Fact:
    relation = rng.choice(list(RELATIONS))
    return Fact(name, rng.randint(2, 9) if relation == "times" else rng.randint(10, LARGEST), relation, other)


def story_task(world: str, story: Story) -> Task:
    """A story as a task of ``world``; its arithmetic decides id and split, not the names or the order of the facts."""
    digest = content_digest(" ".join(word for word in expression(story.chain) if word not in DEFINED))
    return Task(f"{world}-{digest}", split_of(digest), {"question": story.text, "answer": str(story.value)})


def vocabulary() -> list[str]:
    """Every word of stories and arithmetic."""
    numbers = [str(number) for number in range(LARGEST + 1)]
    return [*numbers, *RELATIONS, *RELATIONS.values(), "(", ")", ";", "ask", *NAMES, *DEFINED]


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
