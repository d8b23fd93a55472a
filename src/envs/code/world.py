"""The workflow of a coder and a tester (PettingLLMs, arXiv 2510.11062, experiments).

A turn is: ``tester`` writes tests, ``coder`` writes a program, and the program is run on the tests.  Where they
disagree both see the input, the output and the expected output.  With ``order=sequential`` the coder reads the tests of
the turn before it writes; with ``simultaneous`` both write at once.  The last tests and the last program count.  The
episode ends when program and tests agree, or after ``horizon`` turns: no agent sees the results of the hidden tests.
It is a success if the last program passes all of them.  A team of one (``team=solo``) writes programs alone; they are
run on the tests of the statement.  Where it has none, the first program is the last.

Rewards.  The team reward of a program is the change in the share of hidden tests that pass, so that an episode's team
rewards sum to the share that the last program passes.  The outcome of tests (sequential order), which the team does not
earn, is the world's judgement of them.  Local rewards, times ``local_share``: of the coder, beyond the episode's best,
0.1 for a program that can be read, 0.1 for one that ends on a hidden test, and 0.8 times the share of hidden tests
passed; of the tester 0.2 for tests that can be read, and 0.8 times the share of them that the reference solution
passes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar, Literal, get_args

from ..base import StepResult
from ..drawing import Drawing, Panel, draw_panels, tone_of
from ..execution import Executor
from ..judging import guarded
from ..setting_checks import check_at_least, check_choice, check_fraction
from ..tool_calls import Tool, ToolFormat, text_tool
from ..turns import TurnTakingWorld
from .problem import Check, CheckResult, Suite

TESTER, CODER, SOLO = "tester", "coder", "solo"
Order = Literal["sequential", "simultaneous"]
SUBMIT = text_tool("submit", "Give tests of the program.", "tests", "the tests, in the form that is asked for")
STAGES: dict[Order, tuple[tuple[str, ...], ...]] = {
    "sequential": ((TESTER,), (CODER,)),
    "simultaneous": ((TESTER, CODER),),
}


class CodeWorld(TurnTakingWorld):
    """Rewards of programs and tests; a world adds its problems, its prompts, and how programs are run.

    ``execution`` runs the programs.  ``max_tests`` bounds the tests of one message.  ``local_share``: the weight of
    local rewards, 0 for outcome-only rewards.  ``tools``: a tester calls ``submit``, others :attr:`program_tool`, in
    this form (:mod:`..tool_calls`).
    """

    name = "code"
    execution: Executor
    program_tool: ClassVar[Tool]

    def __init__(
        self,
        execution: Executor,
        *,
        horizon: int,
        order: Order,
        team: Literal["pair", "solo"] = "pair",
        max_tests: int,
        local_share: float,
        tools: ToolFormat | None = None,
    ) -> None:
        check_choice(self.name, "order", order, get_args(Order))
        check_choice(self.name, "team", team, ("pair", "solo"))
        stages = STAGES[order] if team == "pair" else ((SOLO,),)
        super().__init__(stages=stages, horizon=horizon, execution=execution, tools=tools)
        check_fraction("local_share", local_share)
        check_at_least("max_tests", max_tests, 1)
        self.order, self.local_share, self.max_tests = order, local_share, max_tests
        self._clear(())

    def _clear(self, examples: Suite) -> None:
        """No program and no tests yet but ``examples``, those of the statement."""
        self._examples, self._suite = examples, examples
        self._program: str | None = None
        self._results: tuple[CheckResult, ...] = ()
        self._share = 0.0

    def _begin_with(self, examples: Suite) -> None:
        """Begin an episode with the tests that the statement shows."""
        self._begin()
        self._clear(examples)

    # ---- for the world to add --------------------------------------------------------------------------------------

    @abstractmethod
    def _read_program(self, text: str) -> str | None:
        """The program in a message; None where there is none."""

    @abstractmethod
    def _read_tests(self, text: str) -> Suite | None:
        """The tests in a message; None where there are none, or they contradict each other."""

    @abstractmethod
    async def _compiles(self, program: str) -> bool:
        """Whether ``program`` is Python."""

    @abstractmethod
    async def _run_hidden(self, program: str) -> tuple[CheckResult, ...]:
        """Run ``program`` on every hidden test."""

    @abstractmethod
    async def _run(self, program: str, suite: Suite) -> tuple[CheckResult, ...]:
        """Run ``program`` on every test."""

    @abstractmethod
    async def _correct(self, suite: Suite) -> Sequence[bool]:
        """Which tests the reference solution passes."""

    @abstractmethod
    def _statement(self) -> str:
        """The problem in words, before the end without what the coder has to find out."""

    @abstractmethod
    def _problem_key(self) -> Hashable:
        """Which problem it is."""

    def _identity(self, check: Check) -> Check:
        """Equal for tests that differ in nothing that matters."""
        return check

    async def _value_of(self, suite: Suite) -> float:
        """The outcome, in [0, 1], of tests before there is a program; more than silence's for good ones only."""
        return 0.0

    def _tools(self, agent: str) -> Sequence[Tool]:
        return (SUBMIT,) if agent == TESTER else (self.program_tool,)

    # ---- steps ----------------------------------------------------------------------------------------------------

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        local: dict[str, float] = {}
        info: dict[str, float] = {}
        if TESTER in actions:
            local[TESTER] = self.local_share * await self._take_tests(actions[TESTER], info)
        if tuple(actions) == (TESTER,):
            if self._program is not None:
                self._results = await self._run(self._program, self._suite)
            self._next_stage()
            return StepResult(local, await self._value_of(self._suite), False, False, info)
        share_before, author = self._share, SOLO if SOLO in actions else CODER
        local[author] = self.local_share * await self._take_program(actions[author], info)
        self._next_turn(done=self._agreed())
        team = self._share - share_before
        return StepResult(local, team, self._done, self._share == 1, info)

    def draw(self) -> Drawing:
        """The problem, the program and the tests, each with its result, and at the end the hidden tests'."""
        panels = [Panel("problem", self._statement())]
        if self._program is not None or self.turn:
            panels.append(Panel("program", "none could be read" if self._program is None else self._program))
        results = self._results or (None,) * len(self._suite)
        for number, (check, result) in enumerate(zip(self._suite, results, strict=True), 1):
            lines = [f"{check.input.strip()} -> {check.expected.strip()}"]
            lines += [f"it gave {result.output.strip()}"] if result and not result.passed else []
            panels.append(Panel(f"test {number}", "\n".join(lines), tone_of(result.passed) if result else "neutral"))
        if not self.next_agents():
            panels.append(Panel("hidden tests", f"{self._share:.0%} passed", tone_of(self._share)))
        return draw_panels("Code", panels)

    def _state(self) -> tuple[Hashable, ...]:
        return (self._problem_key(), self._suite, self._program, self._results, self._share)

    async def _take_tests(self, text: str, info: dict[str, float]) -> float:
        """The tester's tests take the place of its former ones; returns their local reward, in [0, 1]."""
        tests = guarded(None, self._read_tests, text)
        example_inputs = {self._identity(check).input for check in self._examples}
        new = tuple(check for check in tests or () if self._identity(check).input not in example_inputs)
        self._suite, self._results = (*self._examples, *new), ()
        correct = sum(await self._correct(new)) / len(new) if new else 0.0
        info |= {"malformed": tests is None, "tests": len(new), "right_tests": correct}
        return (0.2 + 0.8 * correct) if new else 0.0

    async def _take_program(self, text: str, info: dict[str, float]) -> float:
        """The program takes the place of the former one; returns how far its score is beyond the episode's best."""
        self._program, self._results, self._share = guarded(None, self._read_program, text), (), 0.0
        score = 0.0
        if self._program is not None:
            self._results = await self._run(self._program, self._suite)
            hidden = await self._run_hidden(self._program)
            self._share = sum(result.passed for result in hidden) / len(hidden)
            ended = any(result.ended for result in hidden)
            score = 0.1 * (ended or await self._compiles(self._program)) + 0.1 * ended + 0.8 * self._share
        malformed = float(self._program is None)
        info["malformed"] = (info["malformed"] + malformed) / 2 if "malformed" in info else malformed  # mean of agents
        agreement = sum(result.passed for result in self._results) / len(self._results) if self._results else 0.0
        info |= {"hidden_passed": self._share, "tests_passed": agreement}
        return self._gain(score)

    def _agreed(self) -> bool:
        """Whether the team has no reason to go on."""
        if self._program is None:
            return False
        return all(result.passed for result in self._results) and (bool(self._suite) or len(self.agents) == 1)
