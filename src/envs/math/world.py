"""The workflow of the mathematics worlds (PettingLLMs, arXiv 2510.11062, section 5): a tool agent computes, a reasoner
answers.

A turn is: ``tool`` sees the question and writes a program, which runs in the sandbox; ``reasoner`` sees the question
and what the program printed, and answers or asks for another turn.  A team of one (``team=solo``) writes a program or
an answer each turn.  Expected answers never enter a process that runs a program: what was printed is compared here.

Rewards.  The team reward of an answer is 1 if it is right, else 0.  The team reward of a tool agent's program is 1 if
what it printed is right.  The local rewards are the paper's, weighted by ``local_share``: of the tool agent 0.1 for a
program, 0.1 for one that ran and printed something, 0.8 for the right output; of the reasoner 0.2 for a message that
can be read and 0.8 for the right answer.  No reward is negative.  However often an episode is paid for, the rewards of
its answers sum to at most 1.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from ...experience import Message, Task
from ...sandbox import Job, Limits, Result, Sandbox, Verdict
from ..base import StepResult, TeamEnv
from ..checks import check_agent, check_choice, check_least, check_share, check_speakers
from ..execution import Execution

TOOL, REASONER, SOLO = "tool", "reasoner", "solo"
BUILD, RUN, FORMAT = 0.1, 0.1, 0.2
"""The paper's weights of a program that is there, one that ran, and a message that can be read; the rest of 1 is for
being right."""


@dataclass(frozen=True)
class Ran:
    """A program and what came of it.  ``shown`` is what the agents are told; ``output`` is what it says the answer is,
    None where it failed or said nothing."""

    program: str
    shown: str
    output: str | None


@dataclass(frozen=True)
class Round:
    """What one turn brought: the program, and the reasoner's words (None: nobody was asked)."""

    ran: Ran | None
    said: str | None = None


class Mathematics(TeamEnv):
    """Turn taking and rewards; a world adds its questions, its notation and how answers are compared.

    ``team``: ``pair`` (agents ``tool`` and ``reasoner``) or ``solo``.  ``stop``: an episode ends with the first
    ``answer``, or, as in the paper, with ``consensus``, once the reasoner says what the program printed.
    ``local_share``: the weight of the local rewards, 0 for outcome-only ones.

    A task's ``data`` has the ``question`` and the ``answer``, both text.
    """

    name = "math"

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        limits: Limits,
        horizon: int,
        team: Literal["pair", "solo"],
        stop: Literal["answer", "consensus"],
        local_share: float,
    ) -> None:
        for key, value, known in (("team", team, ("pair", "solo")), ("stop", stop, ("answer", "consensus"))):
            check_choice(self.name, key, value, known)
        check_least("horizon", horizon, 1)
        check_share("local_share", local_share)
        self.agents = (TOOL, REASONER) if team == "pair" else (SOLO,)
        self.horizon, self.stop, self.local_share = horizon, stop, local_share
        self.execution = Execution(sandbox, limits)
        self.turn, self._acting, self._done = 0, 0, True
        self._question, self._gold = "", ""
        self._rounds: tuple[Round, ...] = ()
        self._ran: Ran | None = None
        self._paid = 0.0

    # ---- what a world adds ----------------------------------------------------------------------------------------

    @abstractmethod
    def _program(self, text: str) -> Job | None:
        """The program of a message; None where there is none."""

    @abstractmethod
    def _read(self, program: str, result: Result) -> Ran:
        """What came of a program, as the agents are told it."""

    @abstractmethod
    def _answer(self, text: str) -> str | None:
        """The answer of a message; None where it has none, or several."""

    @abstractmethod
    def _asks_again(self, text: str) -> bool:
        """Whether a message asks for another turn, in so many words."""

    @abstractmethod
    async def _equal(self, found: str, expected: str) -> bool:
        """Whether an answer is an expected one: the task's, or what a program printed."""

    # ---- the contract ---------------------------------------------------------------------------------------------

    def reset(self, task: Task) -> None:
        self._question, self._gold = task.data["question"], task.data["answer"]
        self.turn, self._acting, self._done = 0, 0, False
        self._rounds, self._ran, self._paid = (), None, 0.0

    def opening(self) -> tuple[str, ...]:
        return self.agents[:1]

    def next_agents(self) -> tuple[str, ...]:
        return () if self._done else (self.agents[self._acting],)

    def observe(self, agent: str) -> list[Message]:
        check_agent(self.name, self.agents, agent)
        return self._told(agent)

    @abstractmethod
    def _told(self, agent: str) -> list[Message]:
        """What ``agent`` is told now."""

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        acting = self.next_agents()
        check_speakers(self.name, acting, actions)
        ((agent, text),) = actions.items()
        if agent == TOOL or (agent == SOLO and self._answer(text) is None):
            return await self._compute(agent, text)
        return await self._conclude(agent, text)

    async def open(self) -> dict[str, bool | int | str]:
        return await self.execution.open()

    async def close(self) -> None:
        await self.execution.close()

    def fork(self) -> Self:
        # No field is ever changed in place, and the world draws no noise.
        return copy.copy(self)

    def state_key(self) -> Hashable:
        place = (self.turn, self._acting, self._done)
        return (*place, self._question, self._gold, self._rounds, self._ran, self._paid)

    # ---- rewards --------------------------------------------------------------------------------------------------

    async def _compute(self, agent: str, text: str) -> StepResult:
        """Run a program, if there is one."""
        job, ran, failed = self._program(text), None, False
        if job is not None:
            result = await self.execution.result(job)
            ran, failed = self._read(text, result), result.verdict is not Verdict.OK
        output = None if ran is None else ran.output
        right = output is not None and await self._equal(output, self._gold)
        team = float(right)
        if agent == TOOL:
            self._ran, self._acting = ran, 1
        else:
            # Half of the aim, once: the other half is to say it.
            team = self._pay(0.5 * right, 0.5)
            self._next_turn(Round(ran))
        local = BUILD * (job is not None) + RUN * (output is not None) + (1 - BUILD - RUN) * right
        info = {"malformed": float(job is None), "failed": float(failed), "right": float(right)}
        return StepResult({agent: self.local_share * local}, team, self._done, False, info)

    async def _conclude(self, agent: str, text: str) -> StepResult:
        """Judge an answer, or go on to the next turn."""
        answer = self._answer(text)
        right = answer is not None and await self._equal(answer, self._gold)
        output = None if self._ran is None else self._ran.output
        settled = answer is not None and (
            agent == SOLO or self.stop == "answer" or (output is not None and await self._equal(answer, output))
        )
        over = settled or self.turn + 1 >= self.horizon
        team = self._pay(float(right) if over else right / self.horizon)
        readable = answer is not None or self._asks_again(text)
        self._next_turn(Round(self._ran, text))
        self._done = over
        local = FORMAT * readable + (1 - FORMAT) * right
        info = {"malformed": float(not readable), "right": float(right)}
        return StepResult({agent: self.local_share * local}, team, over, over and right, info)

    def _pay(self, worth: float, most: float = 1.0) -> float:
        """``worth``, as far as the sum that the episode has been paid stays within ``most``."""
        paid = max(0.0, min(worth, most - self._paid))
        self._paid += paid
        return paid

    def _next_turn(self, played: Round) -> None:
        self._rounds = (*self._rounds, played)
        self._ran, self._acting = None, 0
        self.turn += 1
        self._done = self.turn >= self.horizon
