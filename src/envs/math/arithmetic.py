"""Arithmetic at laptop scale: stories that a tiny model cannot compute by itself, and a tool that computes them.

The tool agent writes an expression ("( bob:= 17 + ( ann:= 34 ) )"); its words, put together, are evaluated by Python in
the sandbox.  The reasoner sees the result, digit by digit, and answers ("say 5 1"), or asks for another turn ("again").

A story says how numbers follow from each other, in a chain that ends with a plain number, and asks for the first of the
chain: "cid:= 3 times bob ; bob:= 17 plus ann ; ann:= 34 ; ask cid" asks for 3 * (17 + 34).

Flawed demonstrators make systematic mistakes: many make the same one, so that it is likelier than the right message.  A
mistake depends on the story and the result alone, and its outcome is wrong: where it happens to come out right, the
demonstrator makes the next one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any, TypeVar

from ...experience import Message, Split, Task
from ...sandbox import Expression, Job, Limits, Result, Sandbox, Verdict
from ..base import Skill
from ..setting_checks import check_at_least
from ..splits import content_digest, split_of
from ..task_sampling import sample_tasks
from ..tool_calls import text_tool
from ..turns import chat
from .world import REASONER, SOLO, TOOL, Mathematics, ProgramRun

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


AGAIN, SAY, ERROR, NONE = "again", "say", "error", "none"
MAX_DIGITS = 8
"""Of a result."""
FLAWED_AGAIN = 0.1
"""How often a flawed demonstrator asks for another turn instead of misreading a result."""
LIMITS = Limits(cpu_s=0.25, idle_s=1.0, memory_mib=64, stdout_bytes=1024, value_bytes=64)
_INTEGER = re.compile(r"-?[0-9]{1,8}")


class Arithmetic(Mathematics):
    """Stories of a chain of ``links`` relations with ``spare`` facts that do not matter.

    ``max_words`` bounds a program.  The other settings are those of :class:`~.world.Mathematics`.
    """

    compute_tool = text_tool("calculate", "Compute an expression.", "expression", "its words, separated by blanks")

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        links: int = 3,
        spare: int = 0,
        horizon: int = 2,
        max_words: int = 24,
        local_share: float = 0.1,
        **common: Any,
    ) -> None:
        super().__init__(LIMITS, sandbox=sandbox, horizon=horizon, local_share=local_share, **common)
        if not (links >= 1 and spare >= 0 and links + 1 + spare <= 8):
            raise ValueError(f"env.links={links} and env.spare={spare}: at least 1 and 0, together at most 7")
        check_at_least("max_words", max_words, 1)
        self.links, self.spare, self.max_words = links, spare, max_words

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return sample_tasks(self.name, split, count, seed, self._draw, max_rejections=1000)

    def _draw(self, rng: Random) -> Task | None:
        story = sample_story(self.links, self.spare, rng)
        # The notation has no longer numbers.
        return story_task(self.name, story) if abs(story.value) < 10**MAX_DIGITS else None

    # ---- notation -------------------------------------------------------------------------------------------------

    def _program(self, text: str) -> Job | None:
        words = text.split()
        if not words or len(words) > self.max_words or not _ARITHMETIC.issuperset(words):
            return None
        return Job(entry=Expression("".join(words)))

    def _read_result(self, program: str, result: Result) -> ProgramRun:
        number = result.value
        if result.verdict is not Verdict.OK or type(number) is not int or not _INTEGER.fullmatch(str(number)):
            return ProgramRun(program, ERROR, None)
        return ProgramRun(program, " ".join(digits(number)), str(number))

    def _answers(self, text: str) -> Sequence[str]:
        say, *rest = text.split() or [""]
        number = "".join(rest)
        # A word has one sign or one digit: the notation has one way to write a number.
        return [number] if say == SAY and rest == [*number] and _INTEGER.fullmatch(number) else []

    def _asks_again(self, text: str) -> bool:
        return text.split() == [AGAIN]

    async def equal(self, answer: str, expected: str) -> bool:
        return int(answer) == int(expected)

    def _prompt(self, agent: str) -> list[Message]:
        reports = [turn.run.report if turn.run else NONE for turn in self._past]
        if agent == REASONER and (self.order == "sequential" or not reports):
            reports.append(self.run.report if self.run else NONE)
        return self._chat(agent, reports)

    def judge_prompt(self, proposals: Mapping[str, str | None]) -> list[Message]:
        """A judge is a reasoner who sees several results; the notation has no word for it."""
        reports = [NONE if each is None else " ".join(digits(int(each))) for each in proposals.values()]
        return self._chat(REASONER, reports)

    def _chat(self, agent: str, reports: Sequence[str]) -> list[Message]:
        words = [self._question, *(word for report in reports for word in ("result", report))]
        return chat(f"{agent} {self.name}", " ".join(words))

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Experts write the expression of the question, say its result, and ask again where there is none.

        A novice slips: in the expression it forgets relations or mistakes a number, in the result a digit.  A flawed
        demonstrator makes a systematic mistake, or asks again after the first result, whatever
        it is.
        """
        story = parse_story(self._question)
        if agent == TOOL:
            return self._demonstrate_program(story, rng, skill)
        run = self._visible_run(agent)
        if agent == SOLO and (run is None or (run.output is None and self.turn + 1 < self.horizon)):
            return self._demonstrate_program(story, rng, skill)
        return self._demonstrate_answer(story, run, rng, skill)

    def _demonstrate_program(self, story: Story, rng: Random, skill: Skill) -> str:
        words = expression(story.chain)
        if skill == "novice":
            if rng.random() < 0.5:
                words = expression([fact for fact in story.chain if not fact.relation or rng.random() < 0.5])
            else:
                words = _slip(words, str(rng.randint(2, LARGEST)), rng)
        elif skill == "flawed":
            words = misconceived_program(story, rng)
        return " ".join(words)

    def _demonstrate_answer(self, story: Story, run: ProgramRun | None, rng: Random, skill: Skill) -> str:
        """An answer, or a request for another turn."""
        output = None if run is None else run.output
        if skill == "flawed":
            if SOLO not in self.agents and self.turn + 1 < self.horizon and rng.random() < FLAWED_AGAIN:
                return AGAIN
            return " ".join([SAY, *digits(misconceived_answer(story, None if output is None else int(output), rng))])
        if output is None:
            return AGAIN if self.turn + 1 < self.horizon else " ".join([SAY, *digits(_guess(rng))])
        if skill == "novice":
            return " ".join([SAY, *_slip(digits(int(output)), rng.choice("0123456789"), rng)])
        return " ".join([SAY, *digits(int(output))])


def _slip(words: list[str], wrong: str, rng: Random) -> list[str]:
    """``words`` with ``wrong`` in place of one of its numbers."""
    place = rng.choice([place for place, word in enumerate(words) if word.isdigit()])
    return [*words[:place], wrong, *words[place + 1 :]]


def _guess(rng: Random) -> int:
    """Any number; a better guess would need arithmetic."""
    return rng.randrange(10 ** rng.randint(2, 4))


_ARITHMETIC = frozenset([*map(str, range(LARGEST + 1)), *RELATIONS.values(), "(", ")", *NAMES, *DEFINED])


def words() -> list[str]:
    """Every word of observations and messages."""
    numbers = [str(number) for number in range(LARGEST + 1)]
    story = [*numbers, *RELATIONS, *RELATIONS.values(), "(", ")", ";", "ask", *NAMES, *DEFINED]
    return [TOOL, REASONER, SOLO, Arithmetic.name, "result", ERROR, NONE, AGAIN, SAY, *story]


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
