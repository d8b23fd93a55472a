"""Questions in words at the papers' scale: the tool agent writes Python, the reasoner reasons and boxes its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

from ...experience import Message, Split, Task
from ...sandbox import Job, Limits, Result, Sandbox, Verdict
from ..checks import check_at_least
from ..datasets import DataSplits
from ..execution import Execution
from ..fences import last_program
from ..tool_calls import Tool, ToolFormat
from ..turns import chat
from .answers import Answers
from .sources import Question, QuestionSource
from .splits import load_questions
from .world import JUDGE, REASONER, SOLO, TOOL, Mathematics, PastTurn, ProgramRun

AGAIN = "[again]"
READING = Limits(cpu_s=5.0, idle_s=5.0, memory_mib=1024, value_bytes=1 << 16)
"""Of reading one answer."""

SYSTEM = {
    TOOL: "You are the tool agent of a team that solves a mathematical problem. Write one Python program, in a block "
    "that begins with ```python and ends with ```, that computes the answer and prints it, and nothing else, on the "
    "last line. It may use the standard library and sympy. It reads no input.",
    REASONER: "You are the reasoner of a team that solves a mathematical problem. A tool agent wrote a program; you "
    "see what it printed, which may be wrong. Reason step by step, then give the final answer, worked out, in "
    "\\boxed{...}, once.",
    JUDGE: "You are the judge of a team that solves a mathematical problem. Tool agents wrote programs, and reasoners "
    "answered; you see what each proposes, and any of it may be wrong. Reason step by step, then give the final "
    "answer, worked out, in \\boxed{...}, once.",
    SOLO: "You solve a mathematical problem. In each message, either write one Python program, in a block that begins "
    "with ```python and ends with ```, which is run and whose output you are then shown, or give the final answer, "
    "worked out, in \\boxed{...}, once.",
}
CALL = {
    TOOL: "You are the tool agent of a team that solves a mathematical problem. Call the function python once, with a "
    "program that computes the answer and prints it, and nothing else, on the last line.",
    SOLO: "You solve a mathematical problem. In each message, either call the function python once, whose output you "
    "are then shown, or give the final answer, worked out, in \\boxed{...}, once.",
}
"""In place of :data:`SYSTEM`, where agents call tools."""
PYTHON = Tool(
    "python",
    "Run a Python program and return what it printed. It may use the standard library and sympy, and reads no input.",
    {"code": {"type": "string", "description": "the whole program"}},
    lambda arguments: f"```python\n{arguments['code']}\n```",
)
AT_ONCE = (
    "You are the reasoner of a team that solves a mathematical problem. A tool agent writes a program at the same "
    "time; in the next turn you see what it printed, which may be wrong. Reason step by step, then give the final "
    "answer, worked out, in \\boxed{...}, once."
)
"""The reasoner's instruction where both act at the same time."""
RETRY = f" If you need another program, end with {AGAIN} instead."


class MathQuestions(Mathematics):
    """Questions of published data sets, see :mod:`.sources`.

    ``train``, ``validation`` and ``test`` are the data sets of each split.  Without data sets for validation, a share
    ``validation_share`` of the training questions, decided by their content, is held out for it.

    ``limits`` hold for the tool agent's programs.  ``shown_chars`` of a program's output, and of every earlier message,
    are shown; a prompt that exceeds a policy's context is cut further.  ``tools``: programs are arguments of the
    function :data:`PYTHON`, called in this form (:mod:`..tool_calls`), or written in fenced blocks (None).
    ``sandbox`` must have :data:`.answers.IMPORTS` among its imports, to read answers with.
    """

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
        team: Literal["pair", "solo"] = "pair",
        stop: Literal["answer", "consensus"] = "answer",
        local_share: float = 1.0,
        shown_chars: int = 2000,
        tools: ToolFormat | None = None,
        order: Literal["sequential", "simultaneous"] = "sequential",
    ) -> None:
        super().__init__(
            sandbox=sandbox,
            limits=limits or Limits(cpu_s=20.0, idle_s=5.0, memory_mib=1024, stdout_bytes=1 << 16),
            horizon=horizon,
            team=team,
            stop=stop,
            local_share=local_share,
            tools=tools,
            order=order,
        )
        check_at_least("shown_chars", shown_chars, 1)
        self.shown_chars = shown_chars
        self.answers = Answers(Execution(sandbox, READING))
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
            raise ValueError("env.sandbox cannot read answers: pip install 'troupe[math]', and see env.sandbox.imports")
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

    def _answer(self, text: str) -> str | None:
        answers = boxed_answers(text)
        return answers[0] if len({"".join(answer.split()) for answer in answers}) == 1 and answers[0].strip() else None

    def _asks_again(self, text: str) -> bool:
        return text.rstrip().endswith(AGAIN) and not boxed_answers(text)

    async def _equal(self, answer: str, expected: str) -> bool:
        return await self.answers.equal(answer, expected, several=self._several)

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self, agent: str) -> Sequence[Tool]:
        return () if agent == REASONER else (PYTHON,)

    def _tool_report(self, agent: str) -> str:
        goes_on = agent == TOOL and self.order == "sequential"  # else its message has ended the turn
        run = self.run if goes_on else self._past[-1].run
        return run.report if run is not None else "There is no program."

    # ---- prompts --------------------------------------------------------------------------------------------------

    def _prompt(self, agent: str) -> list[Message]:
        last = self.turn + 1 >= self.horizon
        at_once = agent == REASONER and self.order == "simultaneous"
        instructions = SYSTEM if self.tool_format is None else SYSTEM | CALL
        system = (AT_ONCE if at_once else instructions[agent]) + (
            RETRY if agent == REASONER and self.stop == "answer" and not last else ""
        )
        parts = [f"Problem:\n{self._question}"]
        parts += [self._history(number, turn) for number, turn in enumerate(self._past, 1)]
        if agent == REASONER and not at_once:
            parts.append(f"The program's output:\n{self.run.report if self.run else 'There is no program.'}")
        if agent == SOLO and last:
            parts.append("This is the last message: give the final answer.")
        return chat(system, "\n\n".join(parts))

    def judge_prompt(self, proposals: Mapping[str, str | None]) -> list[Message]:
        lines = [f"{agent}: {'none' if each is None else self._short(each)}" for agent, each in proposals.items()]
        return chat(SYSTEM[JUDGE], "\n\n".join([f"Problem:\n{self._question}", "Proposals:\n" + "\n".join(lines)]))

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


def boxed_answers(text: str) -> list[str]:
    r"""The contents of the outermost ``\boxed{...}`` of ``text``, in order; an unclosed one counts for nothing."""
    answers, place = [], 0
    while (start := text.find("\\boxed{", place)) >= 0:
        begin = place = start + len("\\boxed{")
        depth = 1
        while depth and place < len(text):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        if depth == 0:
            answers.append(text[begin : place - 1])
    return answers
