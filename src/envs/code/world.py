"""The workflow of a coder and a tester (PettingLLMs, arXiv 2510.11062, section 5).

A turn is: ``tester`` writes tests, ``coder`` writes a program, and the program is run on the tests; where they disagree
both see the input, what the program gave and what the test expects.  With ``order=sequential`` the coder reads the
tests of the turn before it writes; with ``simultaneous`` both write at once.  The last tests and the last program
count.  The episode ends when program and tests agree, or after ``horizon`` turns: nobody is told how the hidden tests
went.  It is a success if the last program passes all of them.  A team of one (``team=solo``) writes programs alone, to
be tried on the tests of the statement; where it has none, its first program is its last.

Rewards.  The team reward of a program is how much larger a share of the hidden tests passes than before it, so that an
episode's team rewards sum to the share that the last program passes.  The tests' (sequential order) is the world's
judgement of them.  Local, times ``local_share``: of the coder, beyond the episode's best, 0.1 for a program that can be
read, 0.1 for one that runs on a hidden test, and 0.8 times the share of hidden tests passed; of the tester 0.2 for
tests that can be read, and 0.8 times the share of them that the reference solution passes.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, Self, get_args

from ..base import StepResult, TeamEnv
from ..checks import check_choice, check_least, check_share, check_speakers
from ..execution import Execution
from .problem import Check, Ran, Suite

TESTER, CODER, SOLO = "tester", "coder", "solo"
Order = Literal["sequential", "simultaneous"]


class CodeWorld(TeamEnv):
    """Turn taking and rewards; a world adds its problems, its prompts, and how programs are run.

    ``execution`` runs the programs.  ``max_tests`` bounds the tests of one message.  ``local_share``: the weight of
    local rewards, 0 for outcome-only rewards.
    """

    name = "code"

    def __init__(
        self,
        execution: Execution,
        *,
        horizon: int,
        order: Order,
        team: Literal["pair", "solo"],
        max_tests: int,
        local_share: float,
    ) -> None:
        check_choice(self.name, "order", order, get_args(Order))
        check_choice(self.name, "team", team, ("pair", "solo"))
        check_least("horizon", horizon, 1)
        check_share("local_share", local_share)
        check_least("max_tests", max_tests, 1)
        self.execution = execution
        self.horizon, self.order, self.local_share, self.max_tests = horizon, order, local_share, max_tests
        self.agents = (TESTER, CODER) if team == "pair" else (SOLO,)
        self._restart(())
        self._done = True  # until there is a task

    def _restart(self, examples: Suite) -> None:
        """Begin an episode with the tests that the statement shows."""
        self.turn, self._tests_are_in, self._done = 0, False, False
        self._examples, self._suite = examples, examples
        self._program: str | None = None
        self._runs: tuple[Ran, ...] = ()
        self._share = self._best = 0.0

    # ---- what a world adds ----------------------------------------------------------------------------------------

    @abstractmethod
    def _read_program(self, text: str) -> str | None:
        """The program in a message; None where there is none."""

    @abstractmethod
    def _read_tests(self, text: str) -> Suite | None:
        """The tests in a message; None where there are none, or they contradict each other."""

    @abstractmethod
    async def _builds(self, program: str) -> bool:
        """Whether ``program`` is Python."""

    @abstractmethod
    async def _try_hidden(self, program: str) -> tuple[Ran, ...]:
        """Run ``program`` on every hidden test."""

    @abstractmethod
    async def _try(self, program: str, suite: Suite) -> tuple[Ran, ...]:
        """Run ``program`` on every test."""

    @abstractmethod
    async def _right(self, suite: Suite) -> Sequence[bool]:
        """Which tests the reference solution passes."""

    def _identity(self, check: Check) -> Check:
        """The same for tests that differ in nothing that matters."""
        return check

    async def _worth(self, suite: Suite) -> float:
        """The team reward, in [0, 1], of tests that no program has met yet; more than silence's for good ones only."""
        return 0.0

    # ---- the contract ---------------------------------------------------------------------------------------------

    async def open(self) -> Mapping[str, bool | int | str]:
        return await self.execution.open()

    async def close(self) -> None:
        await self.execution.close()

    def opening(self) -> tuple[str, ...]:
        return self.agents if self.order == "simultaneous" else self.agents[:1]

    def next_agents(self) -> tuple[str, ...]:
        if self._done:
            return ()
        return (CODER,) if self._tests_are_in else self.opening()

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        acting = self.next_agents()
        check_speakers(self.name, acting, actions)
        local: dict[str, float] = {}
        info: dict[str, float] = {}
        if TESTER in actions:
            local[TESTER] = self.local_share * await self._take_tests(actions[TESTER], info)
        if acting == (TESTER,):
            self._tests_are_in = True
            if self._program is not None:
                self._runs = await self._try(self._program, self._suite)
            return StepResult(local, await self._worth(self._suite), False, False, info)
        before, writer = self._share, acting[-1]
        local[writer] = self.local_share * await self._take_program(actions[writer], info)
        self.turn, self._tests_are_in = self.turn + 1, False
        self._done = self._agreed() or self.turn >= self.horizon
        return StepResult(local, self._share - before, self._done, self._done and self._share == 1, info)

    def fork(self) -> Self:
        # No field is ever changed in place, and the world draws no noise.
        return copy.copy(self)

    def state_key(self) -> Hashable:
        told = (self._suite, self._program, self._runs)
        return (self.turn, self._tests_are_in, self._done, self._problem_key(), *told, self._share, self._best)

    @abstractmethod
    def _problem_key(self) -> Hashable:
        """Which problem it is."""

    # ---- what is said ---------------------------------------------------------------------------------------------

    async def _take_tests(self, text: str, info: dict[str, float]) -> float:
        """The tester's tests take the place of its former ones; returns what they are worth by themselves."""
        tests = self._read_tests(text)
        known = {self._identity(check).given for check in self._examples}
        fresh = tuple(check for check in tests or () if self._identity(check).given not in known)
        self._suite, self._runs = (*self._examples, *fresh), ()
        right = sum(await self._right(fresh)) / len(fresh) if fresh else 0.0
        info |= {"malformed": tests is None, "tests": len(fresh), "right_tests": right}
        return (0.2 + 0.8 * right) if fresh else 0.0

    async def _take_program(self, text: str, info: dict[str, float]) -> float:
        """The program takes the place of the former one; returns how far it is beyond the episode's best."""
        self._program, self._runs, self._share = self._read_program(text), (), 0.0
        score = 0.0
        if self._program is not None:
            self._runs = await self._try(self._program, self._suite)
            hidden = await self._try_hidden(self._program)
            self._share = sum(ran.passed for ran in hidden) / len(hidden)
            runs = any(ran.ran for ran in hidden)
            score = 0.1 * (runs or await self._builds(self._program)) + 0.1 * runs + 0.8 * self._share
        agreeing = sum(ran.passed for ran in self._runs) / len(self._runs) if self._runs else 0.0
        malformed = float(self._program is None)
        info["malformed"] = (
            (info["malformed"] + malformed) / 2 if "malformed" in info else malformed
        )  # of those who act
        info |= {"hidden_passed": self._share, "tests_passed": agreeing}
        beyond, self._best = max(0.0, score - self._best), max(score, self._best)
        return beyond

    def _agreed(self) -> bool:
        """Whether the team has no reason to go on."""
        if self._program is None:
            return False
        return all(ran.passed for ran in self._runs) and (bool(self._suite) or len(self.agents) == 1)
