"""Arithmetic at laptop scale: stories that a tiny model cannot compute by itself, and a tool that computes them.

The tool agent writes an expression ("( bob:= 17 + ( ann:= 34 ) )"); its words, put together, are evaluated by Python in
the sandbox.  The reasoner sees the result, digit by digit, and answers ("say 5 1"), or asks for another turn ("again").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ...experience import Message, Split, Task
from ...sandbox import Expression, Job, Limits, Result, Sandbox, Verdict
from ..base import Skill
from ..setting_checks import check_at_least
from ..task_sampling import sample_tasks
from ..tool_calls import text_tool
from ..turns import chat
from .stories import (
    DEFINED,
    LARGEST,
    NAMES,
    RELATIONS,
    Story,
    digits,
    expression,
    misconceived_answer,
    misconceived_program,
    parse_story,
    sample_story,
    story_task,
    vocabulary,
)
from .world import REASONER, SOLO, TOOL, Mathematics, ProgramRun

AGAIN, SAY, ERROR, NONE = "again", "say", "error", "none"
MAX_DIGITS = 8
"""Of a result."""
FLAWED_AGAIN = 0.1
"""How often a flawed demonstrator asks for another turn instead of misreading a result."""
LIMITS = Limits(cpu_s=0.25, idle_s=1.0, memory_mib=64, stdout_bytes=1024, value_bytes=64)
_INTEGER = re.compile(r"-?[0-9]{1,8}")


class Arithmetic(Mathematics):
    """Stories of a chain of ``links`` relations with ``spare`` facts that do not matter; see :mod:`.stories`.

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
        demonstrator makes a systematic mistake (:mod:`.stories`), or asks again after the first result, whatever
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
    return [TOOL, REASONER, SOLO, Arithmetic.name, "result", ERROR, NONE, AGAIN, SAY, *vocabulary()]
