"""Word problems in English, for a small pretrained model that is prompted by examples.

The tool agent writes the calculation of a story ("47 - 19"), which is evaluated; the reasoner sees the result and
answers with a number.  Every prompt has worked examples before it, as a conversation: without them a model of 135
million parameters writes no calculation at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ...experience import Message, Split, Task
from ...sandbox import Expression, Job, Limits, Result, Sandbox, Verdict
from ..setting_checks import check_at_least
from ..splits import content_digest, split_of
from ..task_sampling import sample_tasks
from ..tool_calls import text_tool
from .world import REASONER, SOLO, TOOL, Mathematics, ProgramRun

NAMES = ("Tom", "Ann", "Ben", "Mia", "Sam", "Eva", "Leo", "Zoe")
THINGS = ("pens", "books", "coins", "cards", "eggs", "cups", "hats", "keys")
MORE = ("gets {} more", "finds {} more", "buys {} more")
LESS = ("gives away {}", "loses {}", "sells {}")
NO_RESULT = "no result"
MAX_DIGITS = 6
"""Of a number in a message; longer ones are not read."""
LIMITS = Limits(cpu_s=0.25, idle_s=1.0, memory_mib=64, stdout_bytes=1024, value_bytes=64)
SYSTEM = {
    TOOL: "Write the calculation.",
    REASONER: "Answer with one number.",
    SOLO: "Write the calculation, or answer with one number.",
}
EXAMPLES = (("Tom has 8 pens. Tom gives away 3.", "8 - 3", "5"), ("Eva has 4 eggs. Eva gets 5 more.", "4 + 5", "9"))
"""Worked examples: a story, its calculation, its answer."""
_NUMBER = rf"(?<![\w.])\d{{1,{MAX_DIGITS}}}(?![\w.]*\d)"
_CALCULATION = re.compile(rf"{_NUMBER}(?:\s?[-+*]\s?{_NUMBER}){{1,8}}")
_INTEGER = re.compile(rf"-?{_NUMBER}")


class WordProblems(Mathematics):
    """Stories of ``steps`` changes, each plus or minus, of a number of things; all numbers are in [2, ``largest``].

    ``examples``: how many worked examples of :data:`EXAMPLES` each prompt has.  The other settings are those of
    :class:`~.world.Mathematics`.

    A message's calculation is the first in it, and its answer the last number that is not part of a calculation: what
    else it says changes nothing.
    """

    compute_tool = text_tool("calculate", "Compute numbers with +, - and *.", "expression", "the calculation")

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        steps: int = 1,
        largest: int = 99,
        examples: int = 1,
        horizon: int = 1,
        local_share: float = 0.1,
        **common: Any,
    ) -> None:
        super().__init__(LIMITS, sandbox=sandbox, horizon=horizon, local_share=local_share, **common)
        check_at_least("steps", steps, 1)
        check_at_least("largest", largest, 9)
        if not 0 <= examples <= len(EXAMPLES):
            raise ValueError(f"env.examples must be in [0, {len(EXAMPLES)}], got {examples}")
        self.steps, self.largest, self.examples = steps, largest, examples

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return sample_tasks(self.name, split, count, seed, self._draw, max_rejections=1000)

    def _draw(self, rng: Random) -> Task:
        """The calculation alone decides id and split, so that no split has another's numbers in other words."""
        name, things = rng.choice(NAMES), rng.choice(THINGS)
        value = rng.randint(2, self.largest)
        story, calculation = [f"{name} has {value} {things}."], str(value)
        for _ in range(self.steps):
            falls = value > 2 and rng.random() < 0.5
            number = rng.randint(2, min(value, self.largest + 1) - 1 if falls else self.largest)
            story.append(f"{name} {rng.choice(LESS if falls else MORE).format(number)}.")
            calculation += f" {'-' if falls else '+'} {number}"
            value += -number if falls else number
        digest = content_digest(calculation)
        return Task(f"{self.name}-{digest}", split_of(digest), {"question": " ".join(story), "answer": str(value)})

    # ---- notation -------------------------------------------------------------------------------------------------

    def _program(self, text: str) -> Job | None:
        calculation = _CALCULATION.search(text)
        # Python knows no leading zeros.
        return None if calculation is None else Job(entry=Expression(re.sub(r"\b0+(?=\d)", "", calculation[0])))

    def _read_result(self, program: str, result: Result) -> ProgramRun:
        number = result.value
        if result.verdict is not Verdict.OK or type(number) is not int or not _INTEGER.fullmatch(str(number)):
            return ProgramRun(program, NO_RESULT, None)
        return ProgramRun(program, str(number), str(number))

    def _answers(self, text: str) -> Sequence[str]:
        numbers: list[str] = _INTEGER.findall(_CALCULATION.sub(" ", text))
        return numbers[-1:]

    def _asks_again(self, text: str) -> bool:
        return text.strip() == "again"

    async def equal(self, answer: str, expected: str) -> bool:
        return int(answer) == int(expected)

    def _prompt(self, agent: str) -> list[Message]:
        shown = agent == REASONER or self._past
        run = self._visible_run(agent)
        report = run.report if run is not None else NO_RESULT
        content = _shown(self._question, report) if shown else self._question
        return [*self._examples(agent), {"role": "user", "content": content}]

    def judge_prompt(self, proposals: Mapping[str, str | None]) -> list[Message]:
        """A judge is a reasoner who sees several results."""
        report = ", ".join(NO_RESULT if each is None else each for each in proposals.values())
        return [*self._examples(REASONER), {"role": "user", "content": _shown(self._question, report)}]

    def _examples(self, agent: str) -> list[Message]:
        """The instruction, and the worked examples."""
        messages: list[Message] = [{"role": "system", "content": SYSTEM[agent]}]
        for story, calculation, answer in EXAMPLES[: self.examples]:
            if agent != REASONER:
                messages += [
                    {"role": "user", "content": story},
                    {"role": "assistant", "content": self._said(self.compute_tool, calculation)},
                ]
            if agent != TOOL:
                messages += [
                    {"role": "user", "content": _shown(story, answer)},
                    {"role": "assistant", "content": self._said(self.answer_tool, answer)},
                ]
        return messages


def _shown(story: str, report: str) -> str:
    """A story with the result of a calculation."""
    return f"{story} Result: {report}"
