"""The workflow of the mathematics worlds (PettingLLMs, arXiv 2510.11062, experiments): a tool agent computes, a
reasoner answers.

A turn is: ``tool`` sees the question and writes a program, which runs in the sandbox; ``reasoner`` sees the question
and the program's output, and answers or asks for another turn.  With ``order=simultaneous`` both write at the same
time, and see no more than the turns before.  A team of one (``team=solo``) writes a program or an answer each turn.
Expected answers never enter a process that runs a program: outputs are compared here.

Rewards.  The team reward of an answer is 1 if it is right, else 0.  The outcome of a tool agent's program, which the
team does not earn, is 1 if its output is right.  The local rewards are the paper's, weighted by ``local_share``: of the
tool agent 0.1 for a program, 0.1 for one that ran and printed something, 0.8 for the right output; of the reasoner 0.2
for a message that can be read and 0.8 for the right answer.  Where both act at the same time, the team reward is the
answer's.  No reward is negative.  The team rewards of an episode's answers sum to at most 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ...experience import Message, Task
from ...sandbox import Job, Limits, Result, Sandbox, Verdict
from ..base import StepResult
from ..drawing import Drawing, Panel, draw_panels, tone_of
from ..execution import Executor
from ..judging import guarded
from ..setting_checks import check_choice, check_fraction
from ..tool_calls import ANSWER, Tool, ToolFormat
from ..turns import TurnTakingWorld

TOOL, REASONER, SOLO, JUDGE = "tool", "reasoner", "solo", "judge"
BUILD, RUN, FORMAT = 0.1, 0.1, 0.2
"""The paper's weights of a program, of one that ran, and of a message that can be read; the rest of 1 is for being
right."""


@dataclass(frozen=True)
class ProgramRun:
    """A program and its run.  ``report`` is shown to the agents; ``output`` is the answer that it printed, None where
    it failed or printed nothing."""

    program: str
    report: str
    output: str | None


@dataclass(frozen=True)
class PastTurn:
    """A turn that is over: the run of its program, and the reasoner's message (None in a team of one)."""

    run: ProgramRun | None
    message: str | None = None


class Mathematics(TurnTakingWorld):
    """Rewards of programs and answers; a world adds its questions, its notation and how answers are compared.

    ``team``: ``pair`` (agents ``tool`` and ``reasoner``) or ``solo``.  ``order``: of a pair, ``sequential`` or
    ``simultaneous``.  ``stop``: an episode ends with the first
    ``answer``, or, as in the paper, with ``consensus``: an answer that is the program's output.  ``local_share``: the
    weight of the local rewards, 0 for outcome-only ones.

    A task's ``data`` has the ``question`` and the ``answer``, both text.
    """

    name = "math"
    execution: Executor
    compute_tool: ClassVar[Tool]
    answer_tool: ClassVar[Tool] = ANSWER

    def __init__(
        self,
        limits: Limits,
        *,
        sandbox: Sandbox,
        horizon: int,
        local_share: float,
        team: Literal["pair", "solo"] = "pair",
        stop: Literal["answer", "consensus"] = "answer",
        tools: ToolFormat | None = None,
        order: Literal["sequential", "simultaneous"] = "sequential",
    ) -> None:
        check_choice(self.name, "team", team, ("pair", "solo"))
        check_choice(self.name, "stop", stop, ("answer", "consensus"))
        check_choice(self.name, "order", order, ("sequential", "simultaneous"))
        pair = ((TOOL,), (REASONER,)) if order == "sequential" else ((TOOL, REASONER),)
        stages = pair if team == "pair" else ((SOLO,),)
        super().__init__(stages=stages, horizon=horizon, execution=Executor(sandbox, limits), tools=tools)
        check_fraction("local_share", local_share)
        self.stop, self.local_share, self.order = stop, local_share, order
        self._question, self._gold = "", ""
        self._past: tuple[PastTurn, ...] = ()
        self.run: ProgramRun | None = None
        self._earned = 0.0
        self._is_right = False  # the last answer

    # ---- for the world to add --------------------------------------------------------------------------------------

    @abstractmethod
    def _program(self, text: str) -> Job | None:
        """The program of a message; None where there is none."""

    @abstractmethod
    def _read_result(self, program: str, result: Result) -> ProgramRun:
        """The run of a program, with its report to the agents."""

    @abstractmethod
    def _answers(self, text: str) -> Sequence[str]:
        """The answers of a message, as written."""

    @abstractmethod
    def _asks_again(self, text: str) -> bool:
        """Whether a message asks for another turn, in exactly these words."""

    @abstractmethod
    async def equal(self, answer: str, expected: str) -> bool:
        """Whether an answer is the expected one: the task's, a program's output, or another agent's."""

    @abstractmethod
    def judge_prompt(self, proposals: Mapping[str, str | None]) -> list[Message]:
        """What the judge of an :class:`~.ensemble.Ensemble` sees: the question, and what each agent proposes."""

    # ---- for an ensemble of pairs ---------------------------------------------------------------------------------

    async def act(self, agent: str, text: str) -> StepResult:
        """The message of ``agent`` alone, whoever else acts; within a step of the ensemble, which counts errors."""
        return await (self._compute(agent, text) if agent == TOOL else self._conclude(agent, text))

    async def read_answer(self, text: str) -> str | None:
        """The answer of a message, as written last; None where it has none, or several that are not equal."""
        answers = guarded((), self._answers, text)
        for other in answers[:-1]:
            if not await self.equal(other, answers[-1]):
                return None
        return answers[-1] if answers else None

    async def is_right(self, answer: str) -> bool:
        """Whether an answer is the task's."""
        return await self.equal(answer, self._gold)

    async def prints_it(self, output: str) -> bool:
        """Whether the output of a program is the task's answer."""
        return await self.equal(output, self._gold)

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self, agent: str) -> Sequence[Tool]:
        compute, answer = self.compute_tool, self.answer_tool
        return {TOOL: (compute,), SOLO: (compute, answer)}.get(agent, (answer,))

    def _tool_report(self, agent: str) -> str:
        if agent == TOOL and self.order == "sequential":  # else its message has ended the turn
            run = self.run
        elif agent == TOOL or (agent == SOLO and self._past[-1].message is None):
            run = self._past[-1].run
        else:
            return super()._tool_report(agent)
        return run.report if run is not None else "There is no program."

    # ---- steps ----------------------------------------------------------------------------------------------------

    def reset(self, task: Task) -> None:
        self._begin()
        self._question, self._gold = task.data["question"], task.data["answer"]
        self._past, self.run, self._earned = (), None, 0.0
        self._is_right = False

    def draw(self) -> Drawing:
        """The question, the programs with their outputs and the answers, and at the end the right one."""
        panels, (first, *_), last = [self.question_panel], self.agents, self.agents[-1]
        for turn in self._past:
            if turn.run is not None or turn.message is None or first == TOOL:  # one agent alone writes one of the two
                panels += run_panels(turn.run, first)
            panels += [] if turn.message is None else [Panel(last, turn.message)]
        panels += run_panels(self.run, first) if self.run else []
        return draw_panels("Mathematics", panels if self.next_agents() else [*panels, self.verdict(self._is_right)])

    @property
    def question_panel(self) -> Panel:
        return Panel("question", self._question)

    def verdict(self, is_right: bool) -> Panel:
        """The right answer, in the colour of the team's."""
        words = "right: the answer is" if is_right else "wrong: the right answer is"
        return Panel(words, self._gold, tone_of(is_right))

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        if len(actions) > 1:
            return await self._act_at_once(actions)
        ((agent, text),) = actions.items()
        if agent == TOOL or (agent == SOLO and await self.read_answer(text) is None):
            return await self._compute(agent, text)
        return await self._conclude(agent, text)

    async def _act_at_once(self, actions: Mapping[str, str]) -> StepResult:
        program = await self.act(TOOL, actions[TOOL])
        answer = await self.act(REASONER, actions[REASONER])
        malformed = (program.info["malformed"] + answer.info["malformed"]) / 2
        info = {**program.info, **answer.info, "malformed": malformed}
        return replace(answer, local={**program.local, **answer.local}, info=info)

    def _visible_run(self, agent: str) -> ProgramRun | None:
        """The last run that ``agent`` sees: of this turn, or of the one before."""
        if agent == REASONER and self.order == "sequential":
            return self.run
        return self._past[-1].run if self._past else None

    def _state(self) -> tuple[Hashable, ...]:
        return (self._question, self._gold, self._past, self.run, self._earned)

    async def _compute(self, agent: str, text: str) -> StepResult:
        """Run a program, if there is one."""
        job, run, failed = guarded(None, self._program, text), None, False
        if job is not None:
            result = await self.execution.result(job)
            run, failed = guarded(None, self._read_result, text, result), result.verdict is not Verdict.OK
        output = None if run is None else run.output
        right = output is not None and await self.prints_it(output)
        team = float(right)
        if agent == TOOL:
            self.run = run
            self._next_stage()
        else:
            team = self._pay(0.5 * right, 0.5)  # half of the aim, once: the other half is to answer
            self._end_turn(PastTurn(run))
        local = BUILD * (job is not None) + RUN * (output is not None) + (1 - BUILD - RUN) * right
        info = {"malformed": float(job is None), "failed": float(failed), "right": float(right)}
        return StepResult({agent: self.local_share * local}, team, self._done, False, info)

    async def _conclude(self, agent: str, text: str) -> StepResult:
        """Judge an answer, or go on to the next turn."""
        answer = await self.read_answer(text)
        right = answer is not None and await self.equal(answer, self._gold)
        output = None if self.run is None else self.run.output
        settled = answer is not None and (
            agent == SOLO or self.stop == "answer" or (output is not None and await self.equal(answer, output))
        )
        over = settled or self.turn + 1 >= self.horizon
        self._is_right = over and right
        team = self._pay(float(right) if over else right / self.horizon)
        readable = answer is not None or guarded(False, self._asks_again, text)
        self._end_turn(PastTurn(self.run, text), done=over)
        local = FORMAT * readable + (1 - FORMAT) * right
        info = {"malformed": float(not readable), "right": float(right)}
        return StepResult({agent: self.local_share * local}, team, over, over and right, info)

    def _pay(self, reward: float, most: float = 1.0) -> float:
        """``reward``, cut so that the episode's payments sum to ``most`` at the most."""
        payment = max(0.0, min(reward, most - self._earned))
        self._earned += payment
        return payment

    def _end_turn(self, turn: PastTurn, *, done: bool = False) -> None:
        self._past, self.run = (*self._past, turn), None
        self._next_turn(done=done)


def run_panels(run: ProgramRun | None, agent: str) -> list[Panel]:
    """A program and what its run gave; red where it gave no answer."""
    if run is None:
        return [Panel(agent, "no program could be read", "bad")]
    return [Panel(agent, run.program), Panel("its output", run.report, "neutral" if run.output is not None else "bad")]
