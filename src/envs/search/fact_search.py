"""Search at laptop scale: questions of two hops over a small knowledge base, which is drawn anew for each task.

The searcher writes a query of a few words ("find ann boss"), the index returns the facts that fit best, and the
reasoner answers ("say oslo") or asks for another search ("again").  No fact can be learnt by heart: a knowledge base
belongs to one task.

Small knowledge bases: the questions of search at laptop scale.

A knowledge base has a few people.  Each has one other person in each of :data:`RELATIONS`, and one value of each of
:data:`ATTRIBUTES`.  A fact is a passage of three words, "ann boss bob", under the title "ann boss"; a question needs
two: "ask ann boss city" asks for the city of Ann's boss.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Final

from ...experience import Message, Split, Task
from ..base import Skill
from ..setting_checks import check_at_least
from ..splits import content_digest, split_of
from ..task_sampling import sample_tasks
from ..tool_calls import ANSWER, text_tool
from ..turns import chat
from .index import Index, Passage
from .world import REASONER, SEARCHER, SOLO, PastSearch, Search

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


FIND, SAY, AGAIN, NONE = "find", "say", "again", "none"
FLAWED_AGAIN = 0.1
"""How often a flawed demonstrator asks again instead of giving the first word it reads."""


class FactSearch(Search):
    """Questions about the facts of ``people`` people.

    ``query_words`` bounds a query.  The text of a question alone decides its split: no question of a held-out split
    occurs in training, over whatever facts.  The other settings are those of :class:`~.world.Search`.
    """

    answer_tool = ANSWER
    search_tool = text_tool("search", "Find facts.", "query", "words, separated by blanks", f"{FIND} {{}}".format)

    def __init__(
        self,
        *,
        people: int = 6,
        horizon: int = 3,
        passages: int = 2,
        query_words: int = 3,
        local_share: float = 0.2,
        **common: Any,
    ) -> None:
        super().__init__(horizon=horizon, passages=passages, local_share=local_share, **common)
        if not 2 <= people <= len(PEOPLE):
            raise ValueError(f"env.people must be in [2, {len(PEOPLE)}], got {people}")
        check_at_least("query_words", query_words, 1)
        self.people, self.query_words = people, query_words
        self._facts: tuple[Passage, ...] = ()

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return sample_tasks(self.name, split, count, seed, self._draw, max_rejections=1000)

    def _draw(self, rng: Random) -> Task:
        facts = sample_facts(self.people, rng)
        question, values = sample_question(facts, rng), {fact.title: value_of(fact) for fact in facts}
        second = question.second(values[question.first])
        digest = content_digest(" ".join([question.text, *(fact.text for fact in facts)]))
        data = {
            "question": question.text,
            "answers": (values[second],),
            "supports": (question.first, second),
            "facts": facts,
        }
        return Task(f"{self.name}-{digest}", split_of(content_digest(question.text)), data)

    def reset(self, task: Task) -> None:
        super().reset(task)
        self._facts = task.data["facts"]

    def _state(self) -> tuple[Hashable, ...]:
        return (*super()._state(), self._facts)

    # ---- notation -------------------------------------------------------------------------------------------------

    def _query(self, text: str) -> str | None:
        find, *words = text.split() or [""]
        fits = find == FIND and 0 < len(words) <= self.query_words and _WORDS.issuperset(words)
        return " ".join(words) if fits else None

    def _answer(self, text: str) -> str | None:
        words = text.split()
        return words[1] if len(words) == 2 and words[0] == SAY and words[1] in _WORDS else None

    def _request(self, text: str) -> str | None:
        return AGAIN if text.split() == [AGAIN] else None

    async def _find(self, query: str) -> tuple[Passage, ...]:
        return _index(self._facts).search(query, self.passages)

    def _prompt(self, agent: str) -> list[Message]:
        words = ["ask", self._question]
        for search in self._searches:
            words += [FIND, search.query or NONE, "seen", *_facts_of(search)]
        return chat(f"{agent} {self.name}", " ".join(words))

    def _search_report(self) -> str:
        return " ".join(_facts_of(self._searches[-1]))

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Experts look for the person, then for the person's attribute, and answer once it is shown.  Novices look
        for, or say, anything of the kind.  A flawed searcher leaves out the first hop, a flawed reasoner says the last
        word of the first fact that it sees.
        """
        question, shown = parse_question(self._question), self._facts_shown
        person = shown.get(question.first)
        answer = None if person is None else shown.get(question.second(person))
        last = self.turn + 1 >= self.horizon
        searches = agent == SEARCHER or (agent == SOLO and not last)
        if skill == "expert":
            if agent == SEARCHER or (agent == SOLO and answer is None and not last):
                return f"{FIND} {question.first if person is None else question.second(person)}"
            if answer is None and agent == REASONER and not last:
                return AGAIN
            return f"{SAY} {answer or rng.choice(ATTRIBUTES[question.attribute])}"
        if skill == "novice":
            if agent == SEARCHER or (searches and rng.random() < 0.5):
                return f"{FIND} {_any_query(question, person, rng)}"
            if agent == REASONER and not last and rng.random() < 0.5:
                return AGAIN
            return f"{SAY} {rng.choice(list(shown.values()) or ATTRIBUTES[question.attribute])}"
        if agent == SEARCHER or (agent == SOLO and not shown and not last):
            return f"{FIND} {question.second(question.subject)}"
        if agent == REASONER and not last and rng.random() < FLAWED_AGAIN:
            return AGAIN
        return f"{SAY} {next(iter(shown.values()), rng.choice(ATTRIBUTES[question.attribute]))}"

    @property
    def _facts_shown(self) -> dict[str, str]:
        """The facts so far: title -> last word."""
        return {fact.title: value_of(fact) for search in self._searches for fact in search.passages}


def _facts_of(search: PastSearch) -> list[str]:
    """The facts that a search showed, as prompts have them."""
    return [f"{fact.text} ;" for fact in search.passages] or [NONE]


def _any_query(question: TwoHop, person: str | None, rng: Random) -> str:
    """Two words of the question, or about the person."""
    name = rng.choice([question.subject, person or rng.choice(PEOPLE)])
    return f"{name} {rng.choice([question.relation, question.attribute])}"


@lru_cache(maxsize=1024)
def _index(facts: tuple[Passage, ...]) -> Index:
    """The index of one task's facts: forks and repeated tasks share it."""
    return Index.of(facts)


_WORDS = frozenset(vocabulary())


def words() -> list[str]:
    """Every word of observations and messages."""
    return [SEARCHER, REASONER, SOLO, FactSearch.name, "ask", "seen", ";", FIND, SAY, AGAIN, NONE, *vocabulary()]
