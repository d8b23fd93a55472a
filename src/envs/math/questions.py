"""Questions in words at the papers' scale: the tool agent writes Python, the reasoner reasons and boxes its answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from ...experience import Message, Split, Task
from ...sandbox import Job, Limits, Result, Sandbox, Verdict
from ..checks import check_least
from ..execution import Execution
from ..fences import last_program
from .answers import Answers
from .collection import Collection
from .sources import Source
from .world import REASONER, SOLO, TOOL, Mathematics, Ran, Round

AGAIN = "[again]"
READING = Limits(cpu_s=5.0, idle_s=5.0, memory_mib=1024, value_bytes=1 << 16)
"""What reading one answer may use."""

SYSTEM = {
    TOOL: "You are the tool agent of a team that solves a mathematical problem. Write one Python program, in a block "
    "that begins with ```python and ends with ```, that computes the answer and prints it, and nothing else, on the "
    "last line. It may use the standard library and sympy. It reads no input.",
    REASONER: "You are the reasoner of a team that solves a mathematical problem. A tool agent wrote a program; you "
    "see what it printed, which may be wrong. Reason step by step, then give the final answer, worked out, in "
    "\\boxed{...}, once.",
    SOLO: "You solve a mathematical problem. In each message, either write one Python program, in a block that begins "
    "with ```python and ends with ```, which is run and whose output you are then shown, or give the final answer, "
    "worked out, in \\boxed{...}, once.",
}
RETRY = f" If you need another program, end with {AGAIN} instead."


class Questions(Mathematics):
    """Questions of published sets, see :mod:`.sources` and :class:`.collection.Collection`.

    ``limits`` hold for the tool agent's programs.  ``shown_chars`` of a program's output, and of every earlier message,
    are shown.  ``sandbox`` must have :data:`.answers.IMPORTS` among its imports, to read answers with.
    """

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        train: Sequence[Source],
        test: Sequence[Source],
        validation: Sequence[Source] = (),
        validation_share: float = 0.02,
        limits: Limits | None = None,
        horizon: int = 4,
        team: Literal["pair", "solo"] = "pair",
        stop: Literal["answer", "consensus"] = "answer",
        local_share: float = 1.0,
        shown_chars: int = 2000,
    ) -> None:
        super().__init__(
            sandbox=sandbox,
            limits=limits or Limits(cpu_s=20.0, idle_s=5.0, memory_mib=1024, stdout_bytes=1 << 16),
            horizon=horizon,
            team=team,
            stop=stop,
            local_share=local_share,
        )
        check_least("shown_chars", shown_chars, 1)
        self.shown_chars = shown_chars
        self.answers = Answers(Execution(sandbox, READING))
        self._sources = {"train": train, "validation": validation, "test": test}
        self._validation_share = validation_share
        self._several = False

    @cached_property
    def collection(self) -> Collection:
        """The questions, read when first asked for."""
        return Collection(self.name, validation_share=self._validation_share, **self._sources)

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return self.collection.tasks(split, count, seed)

    def reset(self, task: Task) -> None:
        super().reset(task)
        self._several = task.data["several"]

    async def open(self) -> dict[str, bool | int | str]:
        counted = {f"questions/{key}": count for key, count in self.collection.counts.items()}
        if await self.answers.read(r"\frac{1}{2}") != ["rat", 1, 2]:
            raise ValueError("env.sandbox cannot read answers: pip install 'troupe[math]', and see env.sandbox.imports")
        return {**await super().open(), **counted}

    # ---- notation -------------------------------------------------------------------------------------------------

    def _program(self, text: str) -> Job | None:
        program = last_program(text)
        return Job(program) if program is not None and program.strip() else None

    def _read(self, program: str, result: Result) -> Ran:
        lines = [line.strip() for line in result.text.splitlines() if line.strip()]
        if result.verdict is not Verdict.OK:
            reason = (result.errors.strip().splitlines() or [result.detail])[-1]
            return Ran(program, self._short(f"It failed ({result.verdict}): {reason}"), None)
        if not lines:
            return Ran(program, "It printed nothing.", None)
        return Ran(program, self._short(result.text.strip()), lines[-1])

    def _answer(self, text: str) -> str | None:
        found = boxed(text)
        return found[0] if len({"".join(content.split()) for content in found}) == 1 and found[0].strip() else None

    def _asks_again(self, text: str) -> bool:
        return text.rstrip().endswith(AGAIN) and not boxed(text)

    async def _equal(self, found: str, expected: str) -> bool:
        return await self.answers.equal(found, expected, several=self._several)

    # ---- prompts --------------------------------------------------------------------------------------------------

    def _told(self, agent: str) -> list[Message]:
        last = self.turn + 1 >= self.horizon
        system = SYSTEM[agent] + (RETRY if agent == REASONER and self.stop == "answer" and not last else "")
        parts = [f"Problem:\n{self._question}"]
        parts += [self._history(number, played) for number, played in enumerate(self._rounds, 1)]
        if agent == REASONER:
            parts.append(f"The program's output:\n{self._ran.shown if self._ran else 'There is no program.'}")
        if agent == SOLO and last:
            parts.append("This is the last message: give the final answer.")
        return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}]

    def _history(self, number: int, played: Round) -> str:
        told = [f"Turn {number}, program:\n{self._short(played.ran.program) if played.ran else 'none'}"]
        told.append(f"Turn {number}, output:\n{played.ran.shown if played.ran else 'none'}")
        if played.said is not None:
            told.append(f"Turn {number}, reasoner:\n{self._short(played.said)}")
        return "\n".join(told)

    def _short(self, text: str) -> str:
        """The beginning and the end of a long text."""
        if len(text) <= self.shown_chars:
            return text
        half = self.shown_chars // 2
        return f"{text[:half]}\n[...]\n{text[len(text) - half :]}"


def boxed(text: str) -> list[str]:
    r"""What stands in the outermost ``\boxed{...}`` of ``text``, in order; an unclosed one counts for nothing."""
    found, place = [], 0
    while (start := text.find("\\boxed{", place)) >= 0:
        begin = place = start + len("\\boxed{")
        depth = 1
        while depth and place < len(text):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        if depth == 0:
            found.append(text[begin : place - 1])
    return found
