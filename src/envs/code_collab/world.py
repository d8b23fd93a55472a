"""Code collaboration (MAGRPO, arXiv 2508.04652): ``aux`` writes an auxiliary function, ``main`` that of the task.

Both write at the same time, so that neither sees the other's function before it is written; main may call aux.  Of the
publication's baselines there are two more orders, in which they see it.  The reward is joint.  From the second turn on,
each sees its own function of the turn before, with feedback (:mod:`.feedback`, also for the reward).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final, Literal, get_args

from ...sandbox import PlainValue
from ..base import StepResult
from ..code.problem import CheckResult
from ..drawing import Drawing, Panel, draw_panels
from ..execution import Executor
from ..judging import guarded
from ..setting_checks import check_choice
from ..tool_calls import Tool, ToolFormat, text_tool
from ..turns import Order, TurnTakingWorld, stages_of
from .feedback import (
    POINTS,
    CodeScore,
    Feedback,
    Report,
    UsageRule,
    cooperation_points,
    draft_panels,
    report_panels,
    structure_points,
)
from .functions import AUX, NOTHING, as_in_first_call, function_in, parameter_stubs, parse, read_function
from .usage import schemes, usage

AGENTS: Final = ("aux", "main")
SOLO: Final = "solo"
WRITE: Final = text_tool("write", "Give your code.", "code", "all of it")
TurnReward = Literal["points", "gain"]


class CollabWorld(TurnTakingWorld):
    """Turns, judgement and reward; a world adds its problems, its prompts, and how programs are run.

    ``turn_reward``: ``points``, as published, are those of each turn; ``gain`` is how much they exceed the best of the
    episode before, so that an episode earns 4 at most; it then ends with 4 points.  ``usage``: when the value of a call
    of aux counts as ignored, see :data:`.feedback.UsageRule`.  ``useful_aux`` is not the publication's: the points for
    cooperation are multiplied by the share of the passed tests that fail with a stub in place of aux, the best of
    nothing, each of its arguments, and its own answer to its first call (:mod:`.functions`).  ``feedback``: what the
    agents see after a turn; ``feedback_tests``: how many tests it is about, see :mod:`.feedback`.

    ``order``: as published ``simultaneous``; see :data:`~troupe.envs.turns.Order` for those of its baselines.

    An episode is a success if its last program passes every test.  ``team=solo``: one agent writes both functions.
    ``tools``: agents call ``write`` in this form (:mod:`..tool_calls`).
    """

    name = "code_collab"
    execution: Executor
    entry: str
    """The name of the main function."""

    def __init__(
        self,
        execution: Executor,
        *,
        turn_reward: TurnReward,
        usage: UsageRule,
        useful_aux: bool,
        feedback_tests: int,
        horizon: int = 1,
        team: Literal["pair", "solo"] = "pair",
        order: Order = "simultaneous",
        feedback: Feedback = "plain",
        tools: ToolFormat | None = None,
    ) -> None:
        check_choice(self.name, "team", team, ("pair", "solo"))
        check_choice(self.name, "turn_reward", turn_reward, get_args(TurnReward))
        check_choice(self.name, "usage", usage, get_args(UsageRule))
        check_choice(self.name, "feedback", feedback, get_args(Feedback))
        stages = stages_of(self.name, order, AGENTS if team == "pair" else (SOLO,), horizon)
        super().__init__(stages=stages, horizon=horizon, execution=execution, tools=tools)
        self.turn_reward, self.usage, self.useful_aux = turn_reward, usage, useful_aux
        self.feedback, self.feedback_tests, self.order = feedback, feedback_tests, order
        self._report: Report | None = None
        self._edits = ("", "")
        self._shown: Mapping[str, str] = {}

    def _begin(self) -> None:
        super()._begin()
        self._report, self._edits, self._shown = None, ("", ""), {}

    # ---- for the world to add --------------------------------------------------------------------------------------

    @abstractmethod
    def _problem_key(self) -> Hashable:
        """Which problem it is."""

    @abstractmethod
    def _statement(self) -> str:
        """The problem in words."""

    @abstractmethod
    def _tests(self) -> tuple[str, ...]:
        """The tests of the problem in words, in the order of their results."""

    @abstractmethod
    async def _run(self, programs: Sequence[str]) -> Sequence[tuple[CheckResult, ...]]:
        """The results of each program on every test, at least one."""

    @abstractmethod
    def _arguments(self, test: int) -> list[PlainValue] | None:
        """With which the test of this number calls main; None: it is a script, or names its arguments."""

    def _parts(self, actions: Mapping[str, str]) -> tuple[str, str]:
        """The texts in which aux and main are."""
        return (actions[SOLO], actions[SOLO]) if SOLO in actions else (actions["aux"], actions["main"])

    async def _propose(self, report: Report) -> tuple[str, str]:
        """The edits of aux and of main that an expert proposes."""
        return "", ""

    def _tools(self, agent: str) -> Sequence[Tool]:
        return (WRITE,)

    # ---- steps ----------------------------------------------------------------------------------------------------

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        texts = self._parts({"aux": "", "main": "", **actions})
        aux, main = (
            guarded("", read_function, text, name) for text, name in zip(texts, (AUX, self.entry), strict=True)
        )
        if self.order == "sequential" and "aux" in actions:
            self._shown = {"aux": aux}
            self._next_stage()
            return self._unjudged(actions, malformed=not aux)
        if self.order == "sequential":
            aux, self._shown = self._shown["aux"], {}
        if self.order == "discussion":
            self._shown = {"aux": aux, "main": main}
            if self.turn == 0:
                self._next_turn()
                return self._unjudged(actions, malformed=((not aux) + (not main)) / 2)
        report = self._report = await self._judge(aux, main)
        points = report.score.points
        complete = points > POINTS - 1e-6
        self._next_turn(done=complete and self.turn_reward == "gain")
        self._edits = ("", "") if self._done else await self._propose(report)
        return StepResult(
            local=dict.fromkeys(actions, 0.0),
            team=points if self.turn_reward == "points" else self._gain(points),
            done=self._done,
            success=report.passed,
            info={
                **asdict(report.score),
                "points": points,
                "complete": complete,
                "all_tests_passed": report.passed,
                "empty_or_malformed": ((not aux) + (not main)) / 2,
                "calls_aux": report.usage.called,
                "wrapper": report.usage.called and report.usage.wrapper,
                "ignores_aux": report.usage.ignored or report.usage.unread,
                **({"useful_aux": report.useful} if self.useful_aux else {}),
                **asdict(report.schemes),
            },
        )

    def _unjudged(self, actions: Mapping[str, str], *, malformed: float) -> StepResult:
        """Of functions that are not a program yet."""
        local = dict.fromkeys(actions, 0.0)
        return StepResult(local, 0.0, False, False, info={"empty_or_malformed": malformed})

    def _partners(self, agent: str) -> str | None:
        """The function that the partner of ``agent`` has written, empty where none could be read; None: not shown."""
        return self._shown.get("main" if agent == "aux" else "aux")

    async def _judge(self, aux: str, main: str) -> Report:
        """The four levels; the first that fails ends the judgement."""
        report = Report(aux, main, self.entry, CodeScore(guarded(0.0, structure_points, aux, main, self.entry)))
        if report.score.structure < 0.6:
            return report
        tree = parse(program_of(aux, main))
        if isinstance(tree, str):
            return replace(report, syntax_error=tree)
        function = function_in(tree, self.entry)
        report = replace(report, score=replace(report.score, syntax=0.5), tests=self._tests())
        if function is not None:
            report = replace(
                report,
                usage=guarded(report.usage, usage, function),
                schemes=guarded(report.schemes, schemes, function) if aux else report.schemes,
            )
        (results,) = await self._run([program_of(aux, main)])
        share = share_passed(results)
        report = replace(report, results=results, score=replace(report.score, tests=share))
        points = cooperation_points(report.usage, self.usage) if share and aux else 0.0
        if not points:
            return report
        useful = await self._usefulness(aux, main, results) if self.useful_aux else 1.0
        return replace(report, useful=useful, score=replace(report.score, cooperation=points * useful))

    async def _usefulness(self, aux: str, main: str, results: Sequence[CheckResult]) -> float:
        """The share of the passed tests that fail with a stub in place of aux, with the stub that fails fewest.

        An aux that answers as in its first call is right by its definition in the test of that call, which does not
        count then.
        """
        passed = {place for place, result in enumerate(results) if result.passed}
        tried = [(program_of(stub, main), passed) for stub in (NOTHING, *parameter_stubs(aux))]
        first, others = min(passed), passed - {min(passed)}
        arguments = self._arguments(first)
        if arguments is not None and others:
            tried.append((as_in_first_call(program_of(aux, main), self.entry, arguments), others))
        with_stubs = await self._run([program for program, _ in tried])
        return min(
            sum(not found[place].passed for place in places) / len(places)
            for found, (_, places) in zip(with_stubs, tried, strict=True)
        )

    def draw(self) -> Drawing:
        panels = [Panel("task", self._statement()), *(report_panels(self._report) if self._report else ())]
        if self._report is None or self.order == "sequential":  # else they are the functions of the report
            panels += draft_panels(self._shown)
        return draw_panels("Code collaboration", panels)

    def _state(self) -> tuple[Hashable, ...]:
        return (self._problem_key(), self._report, self._edits, tuple(self._shown.items()))


def program_of(aux: str, main: str) -> str:
    """The program of both functions."""
    return "\n\n".join(part for part in (aux, main) if part)


def share_passed(results: Sequence[CheckResult]) -> float:
    """The share of the tests that passed."""
    return sum(result.passed for result in results) / len(results)
