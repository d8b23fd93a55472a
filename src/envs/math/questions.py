"""Questions in words at the papers' scale: the tool agent writes Python, the reasoner reasons and boxes its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ...experience import Message, Split, Task
from ...sandbox import Job, Limits, Result, Sandbox, Verdict
from ..datasets import DataSplits
from ..execution import Executor
from ..fences import last_program
from ..setting_checks import check_at_least
from ..tool_calls import Tool, ToolFormat, fenced, text_tool
from ..turns import chat
from .answers import Answers, boxed_answers, spaced
from .sources import Question, QuestionSource, load_questions
from .world import JUDGE, REASONER, SOLO, TOOL, Mathematics, PastTurn, ProgramRun

AGAIN = "[again]"
READING = Limits(cpu_s=5.0, idle_s=5.0, memory_mib=1024, value_bytes=1 << 16)
"""Of reading one answer."""

MAX_BOXES = 8
"""Different spellings of an answer in one message; one with more has no answer."""

FENCE = ", in a block that begins with ```python and ends with ```,"
BOX = ", in \\boxed{...}, once"
AT_ONCE = "reasoner at once"
"""The key of a reasoner that writes at the same time as the tool agent."""


def instructions(fence: str = "", box: str = "", give: str = "Reason step by step, then give") -> dict[str, str]:
    """The system messages of each agent; ``fence`` and ``box``: where programs and answers stand in plain text."""
    answer = f"{give} the final answer, worked out{box}."
    return {
        TOOL: "You are the tool agent of a team that solves a mathematical problem. Write one Python program"
        f"{fence} that computes the answer and prints it, and nothing else, on the last line. It may use the standard "
        "library and sympy. It reads no input.",
        REASONER: "You are the reasoner of a team that solves a mathematical problem. A tool agent wrote a program; "
        f"you see what it printed, which may be wrong. {answer}",
        AT_ONCE: "You are the reasoner of a team that solves a mathematical problem. A tool agent writes a program at "
        f"the same time; in the next turn you see what it printed, which may be wrong. {answer}",
        JUDGE: "You are the judge of a team that solves a mathematical problem. Tool agents wrote programs, and "
        f"reasoners answered; you see what each proposes, and any of it may be wrong. {answer}",
        SOLO: f"You solve a mathematical problem. In each message, either write one Python program{fence} which is run "
        f"and whose output you are then shown, or give the final answer, worked out{box}.",
    }


SYSTEM: Mapping[ToolFormat | None, Mapping[str, str]] = {
    None: instructions(FENCE, BOX),
    "hermes": instructions(),
    "llama": instructions(give="Give"),  # there is no room for reasons
}
"""By the form of calls, the system messages."""
PYTHON = text_tool(
    "python",
    "Run a Python program and return what it printed. It may use the standard library and sympy, and reads no input.",
    "code",
    "the whole program",
    fenced,
)
BOXED = text_tool(
    "answer", "Give the final answer.", "answer", "in LaTeX, its backslashes doubled", "\\boxed{{{}}}".format
)
AGAIN_TOOL = Tool("again", "Ask for another program instead of an answer.", {}, lambda arguments: AGAIN)
RETRY = f" If you need another program, end with {AGAIN} instead."
RETRY_CALL = " If you need another program, call again instead."


class MathQuestions(Mathematics):
    """Questions of published data sets, see :mod:`.sources`.

    ``train``, ``validation`` and ``test`` are the data sets of each split.  Without data sets for validation, a share
    ``validation_share`` of the training questions, decided by their content, is held out for it.

    ``limits`` hold for the tool agent's programs.  ``shown_chars`` of a program's output, and of every earlier message,
    are shown; a prompt that exceeds a policy's context is cut further.  ``tools``: agents call ``python`` and
    ``answer`` in this form (:mod:`..tool_calls`), or write fenced blocks and boxes (None).
    ``sandbox`` must have :data:`.answers.IMPORTS` among its imports, to read answers with.
    """

    compute_tool, answer_tool = PYTHON, BOXED

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        train: Sequence[QuestionSource],
        test: Sequence[QuestionSource],
        validation: Sequence[QuestionSource] = (),
        validation_share: float = 0.02,
        limits: Limits | None = None,
        horizon: int = 4,
        local_share: float = 1.0,
        shown_chars: int = 2000,
        **common: Any,
    ) -> None:
        limits = limits or Limits(cpu_s=20.0, idle_s=5.0, memory_mib=1024, stdout_bytes=1 << 16)
        super().__init__(limits, sandbox=sandbox, horizon=horizon, local_share=local_share, **common)
        check_at_least("shown_chars", shown_chars, 1)
        self.shown_chars = shown_chars
        self.answers = Answers(Executor(sandbox, READING))
        self._sources: dict[Split, Sequence[QuestionSource]] = {"train": train, "validation": validation, "test": test}
        self._validation_share = validation_share
        self._several = False

    @cached_property
    def splits(self) -> DataSplits[Question]:
        """The questions, read on first use."""
        return load_questions(self.name, self._sources, validation_share=self._validation_share)

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return self.splits.tasks(split, count, seed)

    def task_count(self, split: Split) -> int:
        return len(self.splits.items[split])

    def reset(self, task: Task) -> None:
        super().reset(task)
        self._several = task.data["several"]

    async def open(self) -> Mapping[str, bool | int | str]:
        counts = {f"questions/{key}": count for key, count in self.splits.counts.items()}
        if await self.answers.read(r"\frac{1}{2}") != ["rat", 1, 2]:
            raise ValueError(
                "env.sandbox cannot read answers: pip install 'troupe-rl[math]', and see env.sandbox.imports"
            )
        return {**await super().open(), **counts}

    # ---- notation -------------------------------------------------------------------------------------------------

    def _program(self, text: str) -> Job | None:
        program = last_program(text)
        return Job(program) if program is not None and program.strip() else None

    def _read_result(self, program: str, result: Result) -> ProgramRun:
        lines = [line.strip() for line in result.text.splitlines() if line.strip()]
        if result.verdict is not Verdict.OK:
            reason = (result.errors.strip().splitlines() or [result.detail])[-1]
            return ProgramRun(program, self._short(f"It failed ({result.verdict}): {reason}"), None)
        if not lines:
            return ProgramRun(program, "It printed nothing.", None)
        return ProgramRun(program, self._short(result.text.strip()), lines[-1])

    def _answers(self, text: str) -> Sequence[str]:
        answers = {spaced(answer): answer for answer in boxed_answers(text) if answer.strip()}
        return list(answers.values()) if len(answers) <= MAX_BOXES else []

    def _asks_again(self, text: str) -> bool:
        return text.rstrip().endswith(AGAIN) and not boxed_answers(text)

    async def equal(self, answer: str, expected: str) -> bool:
        return await self.answers.equal(answer, expected, several=self._several)

    async def prints_it(self, output: str) -> bool:
        return await self.answers.equal(output, self._gold, several=self._several, printed=True)

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self, agent: str) -> Sequence[Tool]:
        tools = super()._tools(agent)
        return (*tools, AGAIN_TOOL) if agent == REASONER and self._may_ask_again else tools

    @property
    def _may_ask_again(self) -> bool:
        return self.stop == "answer" and self.turn + 1 < self.horizon

    # ---- prompts --------------------------------------------------------------------------------------------------

    def _prompt(self, agent: str) -> list[Message]:
        last = self.turn + 1 >= self.horizon
        at_once = agent == REASONER and self.order == "simultaneous"
        texts, retry = SYSTEM[self.tool_format], RETRY if self.tool_format is None else RETRY_CALL
        system = texts[AT_ONCE if at_once else agent] + (retry if agent == REASONER and self._may_ask_again else "")
        parts = [f"Problem:\n{self._question}"]
        parts += [self._history(number, turn) for number, turn in enumerate(self._past, 1)]
        if agent == REASONER and not at_once:
            parts.append(f"The program's output:\n{self.run.report if self.run else 'There is no program.'}")
        if agent == SOLO and last:
            parts.append("This is the last message: give the final answer.")
        return chat(system, "\n\n".join(parts))

    def judge_prompt(self, proposals: Mapping[str, str | None]) -> list[Message]:
        lines = [f"{agent}: {'none' if each is None else self._short(each)}" for agent, each in proposals.items()]
        parts = [f"Problem:\n{self._question}", "Proposals:\n" + "\n".join(lines)]
        return chat(SYSTEM[self.tool_format][JUDGE], "\n\n".join(parts))

    def _history(self, number: int, turn: PastTurn) -> str:
        parts = [f"Turn {number}, program:\n{self._short(turn.run.program) if turn.run else 'none'}"]
        parts.append(f"Turn {number}, output:\n{turn.run.report if turn.run else 'none'}")
        if turn.message is not None:
            parts.append(f"Turn {number}, reasoner:\n{self._short(turn.message)}")
        return "\n".join(parts)

    def _short(self, text: str) -> str:
        """The beginning and the end of a long text."""
        if len(text) <= self.shown_chars:
            return text
        half = self.shown_chars // 2
        return f"{text[:half]}\n[...]\n{text[len(text) - half :]}"
