"""Small knowledge bases: the questions of search at laptop scale.

A knowledge base has a few people.  Each has one other person in each of :data:`RELATIONS`, and one value of each of
:data:`ATTRIBUTES`.  A fact is a passage of three words, "ann boss bob", under the title "ann boss"; a question needs
two: "ask ann boss city" asks for the city of Ann's boss.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from .index import Passage

PEOPLE: Final = tuple(
    "ann bob cid dan eva fay gus hal ida jim kay leo mia ned ola pam "
    "quin rex sam tom ute vera walt xena yan zoe amy ben cora dora emil finn".split()
)
RELATIONS: Final = ("boss", "friend", "teacher", "rival")
ATTRIBUTES: Final = {
    "city": tuple("bern cairo delhi lima oslo paris quito rome".split()),
    "food": tuple("bread corn figs nuts peas rice soup tofu".split()),
    "pet": tuple("cat crow dog frog goat hen mule toad".split()),
    "sport": tuple("chess darts golf judo polo rugby squash yoga".split()),
}
"""Attribute -> its values."""


@dataclass(frozen=True)
class TwoHop:
    """A question: the ``attribute`` of the person who is the ``relation`` of ``subject``."""

    subject: str
    relation: str
    attribute: str

    @property
    def text(self) -> str:
        return f"{self.subject} {self.relation} {self.attribute}"

    @property
    def first(self) -> str:
        """The title of the fact that has the person."""
        return f"{self.subject} {self.relation}"

    def second(self, person: str) -> str:
        """The title of the fact that has the answer."""
        return f"{person} {self.attribute}"


def parse_question(text: str) -> TwoHop:
    """The question of ``text``; the reverse of :attr:`TwoHop.text`."""
    return TwoHop(*text.split())


def fact(title: str, value: str) -> Passage:
    """The words of the title count twice in a search, so that of "ann boss bob" and "cid boss ann" the first is the
    better one for "ann boss"."""
    return Passage(title, f"{title} {value}")


def value_of(passage: Passage) -> str:
    """The last word of a fact."""
    return passage.text.rpartition(" ")[2]


def sample_facts(people: int, rng: Random) -> tuple[Passage, ...]:
    """The facts about so many random people, in random order; nobody is in a relation to themselves, and each person is
    the boss (friend, ...) of one."""
    names = rng.sample(PEOPLE, people)
    facts = []
    for relation in RELATIONS:
        ring, step = rng.sample(names, people), rng.randint(1, people - 1)
        facts += [fact(f"{name} {relation}", ring[(i + step) % people]) for i, name in enumerate(ring)]
    for attribute, values in ATTRIBUTES.items():
        facts += [fact(f"{name} {attribute}", rng.choice(values)) for name in names]
    return tuple(rng.sample(facts, len(facts)))


def sample_question(facts: tuple[Passage, ...], rng: Random) -> TwoHop:
    """A random question about somebody in ``facts``."""
    subject = rng.choice(sorted({each.title.split()[0] for each in facts}))
    return TwoHop(subject, rng.choice(RELATIONS), rng.choice(list(ATTRIBUTES)))


def vocabulary() -> list[str]:
    """Every word of facts and questions."""
    return [*PEOPLE, *RELATIONS, *ATTRIBUTES, *(value for values in ATTRIBUTES.values() for value in values)]
