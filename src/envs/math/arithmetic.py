"""Arithmetic at laptop scale: stories whose sums are too long for a tiny model's head, and a tool that computes them.

The tool agent writes an expression ("( bob:= 17 + ( ann:= 34 ) )"); its words, put together, are evaluated by Python in
the sandbox.  The reasoner sees the result, digit by digit, and says it ("say 5 1"), or asks for another turn ("again").
"""

from __future__ import annotations

import re
from random import Random
from typing import Literal

from ...experience import Message, Split, Task
from ...sandbox import Expression, Job, Limits, Result, Sandbox, Verdict
from ..base import Skill
from ..checks import check_least
from ..drawing import different
from .misconceptions import misconceived_answer, misconceived_program
from .stories import DEFINED, LARGEST, NAMES, RELATIONS, Story, digits, draw, expression, task, told, vocabulary
from .world import REASONER, SOLO, TOOL, Mathematics, Ran

AGAIN, SAY, ERROR, NONE = "again", "say", "error", "none"
LONGEST = 8
"""Digits of a result, at most."""
DOUBTS = 0.1
"""How often a bungler asks for another turn instead of misreading a result."""
LIMITS = Limits(cpu_s=0.25, idle_s=1.0, memory_mib=64, stdout_bytes=1024, value_bytes=64)
_INTEGER = re.compile(r"-?[0-9]{1,8}")


class Arithmetic(Mathematics):
    """Stories of a chain of ``links`` relations with ``spare`` facts that do not matter; see :mod:`.stories`.

    ``max_words`` bounds a program.  The other settings are those of :class:`~.world.Mathematics`.
    """

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        links: int = 3,
        spare: int = 0,
        horizon: int = 2,
        max_words: int = 24,
        team: Literal["pair", "solo"] = "pair",
        stop: Literal["answer", "consensus"] = "answer",
        local_share: float = 0.1,
    ) -> None:
        super().__init__(sandbox=sandbox, limits=LIMITS, horizon=horizon, team=team, stop=stop, local_share=local_share)
        if not (links >= 1 and spare >= 0 and links + 1 + spare <= 8):
            raise ValueError(f"env.links={links} and env.spare={spare}: at least 1 and 0, together at most 7")
        check_least("max_words", max_words, 1)
        self.links, self.spare, self.max_words = links, spare, max_words

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return different(self.name, split, count, seed, self._draw, patience=1000)

    def _draw(self, rng: Random) -> Task | None:
        story = draw(self.links, self.spare, rng)
        # A result that is too long to be said is not asked for.
        return task(self.name, story) if abs(story.value) < 10**LONGEST else None

    # ---- notation -------------------------------------------------------------------------------------------------

    def _program(self, text: str) -> Job | None:
        words = text.split()
        if not words or len(words) > self.max_words or not _ARITHMETIC.issuperset(words):
            return None
        return Job(entry=Expression("".join(words)))

    def _read(self, program: str, result: Result) -> Ran:
        number = result.value
        if result.verdict is not Verdict.OK or type(number) is not int or not _INTEGER.fullmatch(str(number)):
            return Ran(program, ERROR, None)
        return Ran(program, " ".join(digits(number)), str(number))

    def _answer(self, text: str) -> str | None:
        say, *rest = text.split() or [""]
        said = "".join(rest)
        # One sign, one digit a word: the notation has one way to say a number.
        return said if say == SAY and rest == [*said] and _INTEGER.fullmatch(said) else None

    def _asks_again(self, text: str) -> bool:
        return text.split() == [AGAIN]

    async def _equal(self, found: str, expected: str) -> bool:
        return int(found) == int(expected)

    def _told(self, agent: str) -> list[Message]:
        results = [played.ran.shown if played.ran else NONE for played in self._rounds]
        if agent == REASONER:
            results.append(self._ran.shown if self._ran else NONE)
        words = [self._question, *(word for shown in results for word in ("result", shown))]
        return [
            {"role": "system", "content": f"{agent} {self.name}"},
            {"role": "user", "content": " ".join(words)},
        ]

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Experts write the expression that is asked for, say its result, and ask again where there is none.

        A novice slips: in the expression it forgets relations or mistakes a number, in the result a digit.  A bungler
        has a misconception that many share (:mod:`.misconceptions`), or doubts the first result, whatever it is.
        """
        story = told(self._question)
        if agent == TOOL:
            return self._written(story, rng, skill)
        seen = self._ran if agent == REASONER else (self._rounds[-1].ran if self._rounds else None)
        if agent == SOLO and (seen is None or (seen.output is None and self.turn + 1 < self.horizon)):
            return self._written(story, rng, skill)
        return self._said(story, seen, rng, skill)

    def _written(self, story: Story, rng: Random, skill: Skill) -> str:
        """A program."""
        words = expression(story.chain)
        if skill == "novice":
            if rng.random() < 0.5:
                words = expression([fact for fact in story.chain if not fact.relation or rng.random() < 0.5])
            else:
                words = _slipped(words, str(rng.randint(2, LARGEST)), rng)
        elif skill == "bungler":
            words = misconceived_program(story, rng)
        return " ".join(words)

    def _said(self, story: Story, seen: Ran | None, rng: Random, skill: Skill) -> str:
        """An answer, or the wish for another turn."""
        output = None if seen is None else seen.output
        if skill == "bungler":
            if SOLO not in self.agents and self.turn + 1 < self.horizon and rng.random() < DOUBTS:
                return AGAIN
            return " ".join([SAY, *digits(misconceived_answer(story, None if output is None else int(output), rng))])
        if output is None:
            return AGAIN if self.turn + 1 < self.horizon else " ".join([SAY, *digits(_guess(rng))])
        if skill == "novice":
            return " ".join([SAY, *_slipped(digits(int(output)), rng.choice("0123456789"), rng)])
        return " ".join([SAY, *digits(int(output))])


def _slipped(words: list[str], wrong: str, rng: Random) -> list[str]:
    """``words`` with ``wrong`` in place of one of its numbers."""
    place = rng.choice([place for place, word in enumerate(words) if word.isdigit()])
    return [*words[:place], wrong, *words[place + 1 :]]


def _guess(rng: Random) -> int:
    """Any number: to be near the answer takes a head for figures."""
    return rng.randrange(10 ** rng.randint(2, 4))


_ARITHMETIC = frozenset([*map(str, range(LARGEST + 1)), *RELATIONS.values(), "(", ")", *NAMES, *DEFINED])


def words() -> list[str]:
    """Every word of observations and messages."""
    return [TOOL, REASONER, SOLO, Arithmetic.name, "result", ERROR, NONE, AGAIN, SAY, *vocabulary()]
