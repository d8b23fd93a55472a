"""The two-role workflow of the grid worlds (PettingLLMs, arXiv 2510.11062, experiments): a tool agent proposes, a
planning agent acts.

A turn is: ``tool`` writes a proposal, the world checks it, ``plan`` sees its own view, the proposal and the check, and
writes moves (of pieces, or digits to fill in).  Only the planner's moves change the world; they stop at the first one
that is blocked.  A team of one (``team=solo``) sees the board and writes moves.

Rewards.  The team reward of a planner's (or solo agent's) message is 1 if the goal is reached after it, else 0.  The
outcome of a tool agent's message, which the team does not earn, is 1 if the goal is reached when its proposal is
carried out on a copy of the world.  The local reward is a small share of the progress towards the goal in solver
distance: of the planner, beyond the best distance of the episode so far (going back and forth earns nothing); of the
tool agent, that its proposal would make on the map that it sees.  No reward is negative, so that trying never costs
more than silence. ``local_reward=dense`` has PettingLLMs' instead (:mod:`.dense`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, ClassVar, Literal, get_args

from ...experience import Message, Split, Task
from ...sandbox import Job, Limits, Sandbox, Verdict
from ..base import StepResult
from ..execution import Executor
from ..judging import guarded
from ..setting_checks import check_choice, check_fraction
from ..task_sampling import sample_tasks
from ..tool_calls import Tool, ToolFormat, fenced, text_tool
from ..turns import TurnTakingWorld, chat
from . import prompts
from .board import MALFORMED, MovePlan
from .dense import MALFORMED_REWARD, LocalReward

TOOL, PLAN, SOLO = "tool", "plan", "solo"
PYTHON = text_tool(
    "python",
    "Run a Python program with what you see as JSON on its standard input; the last line that it prints is proposed.",
    "code",
    "the whole program",
    fenced,
)
ToolMessage = Literal["plan", "program"]
Wording = Literal["compact", "full"]


@dataclass(frozen=True)
class ProposalCheck:
    """The effect of a proposal on a copy of the world.

    ``success`` and ``blocked`` on the real board; ``progress`` in [0, 1] and ``words`` on the map that the tool agent
    sees.
    """

    success: bool
    blocked: bool
    progress: float
    words: tuple[str, ...]


class TwoRoleWorld(TurnTakingWorld):
    """Workflow and rewards shared by the grid worlds; a world adds its board and its notation.

    ``team``: ``pair`` (agents ``tool`` and ``plan``) or ``solo``.  ``tool_message``: ``plan``, or ``program`` (Python
    that prints one, run in ``sandbox`` with ``program_seconds`` of CPU time).  ``wording``: ``compact`` (the notation)
    or ``full`` (rules, drawn boards).  ``local_reward``: ``progress`` or ``dense``; ``local_share``: its weight, 0 for
    outcome-only rewards.  ``tools``: agents call ``propose`` and ``move`` (in Sudoku ``fill``), or ``python`` with a
    program, in this form (:mod:`..tool_calls`).
    """

    answer_label = "moves"
    """The word before the colon in the line that counts, in full wording."""
    act_tool: ClassVar[tuple[str, str]] = ("move", "Make moves.")
    """The function of an agent that acts: its name, and what it does."""
    check_texts: ClassVar[Mapping[str, str]] = prompts.CHECKS
    last_texts: ClassVar[Mapping[str, str]] = prompts.LAST
    """The checks of a proposal and the results of the last moves, in full wording."""

    def __init__(
        self,
        *,
        size: int,
        horizon: int = 4,
        team: Literal["pair", "solo"] = "pair",
        tool_message: ToolMessage = "plan",
        wording: Wording = "compact",
        sandbox: Sandbox | None = None,
        program_seconds: float = 2.0,
        local_reward: LocalReward = "progress",
        local_share: float = 0.1,
        tools: ToolFormat | None = None,
    ) -> None:
        check_choice(self.name, "team", team, ("pair", "solo"))
        check_choice(self.name, "tool_message", tool_message, get_args(ToolMessage))
        check_choice(self.name, "wording", wording, get_args(Wording))
        check_choice(self.name, "local_reward", local_reward, get_args(LocalReward))
        programs = team == "pair" and tool_message == "program"
        if programs and wording != "full":
            raise ValueError("env.tool_message=program: only env.wording=full tells the tool agent to write a program")
        if programs and sandbox is None:
            raise ValueError(
                "env.tool_message=program: the tool agent's programs need a sandbox to run in; give "
                "env.sandbox={_target_: troupe.sandbox.LocalSandbox}"
            )
        super().__init__(
            stages=((TOOL,), (PLAN,)) if team == "pair" else ((SOLO,),),
            horizon=horizon,
            execution=Executor(sandbox, Limits(cpu_s=program_seconds)) if programs and sandbox else None,
            tools=tools,
        )
        check_fraction("local_share", local_share)
        self.size, self.wording, self.local_reward, self.local_share = size, wording, local_reward, local_share
        self._success, self._last = False, "start"
        self._clear_proposal()
        self._first_distance = self._best_distance = 1

    def _clear_proposal(self) -> None:
        self._proposal, self._plan, self._fault = "", MovePlan(), ""
        self._check: tuple[str, ...] = ("none",)

    # ---- for the world to add --------------------------------------------------------------------------------------

    @abstractmethod
    def _draw(self, split: Split, rng: Random) -> Task | None:
        """A random task, or None where the draw failed; of another split than ``split`` it is not used."""

    @abstractmethod
    def _start(self, task: Task) -> None:
        """Put the pieces on the board."""

    @abstractmethod
    def _board(self, agent: str) -> list[str]:
        """The board's words as ``agent`` sees it."""

    @abstractmethod
    def _drawing(self, agent: str) -> str:
        """The board as ``agent`` sees it, in full wording."""

    @abstractmethod
    def _input(self) -> str:
        """The board as the tool agent sees it, as JSON for its program."""

    @abstractmethod
    def _rules(self, agent: str) -> str:
        """The world and the agent's part in it, in full wording."""

    def _limits(self) -> str:
        """The limits of an episode, in full wording."""
        return f"The team has {self.horizon} turns."

    @abstractmethod
    def _form(self, agent: str, program_seconds: float | None) -> str:
        """How to answer, in full wording; ``program_seconds``: of CPU time, where a program is to be written."""

    @abstractmethod
    def _parse(self, text: str, agent: str) -> MovePlan:
        """Read the notation."""

    def _notation(self, agent: str) -> str:
        """What the argument of a call is."""
        return "in the form that is asked for"

    @abstractmethod
    def _distance(self) -> int | None:
        """The fewest moves to the goal from here; None where it cannot be reached any more."""

    @abstractmethod
    def _solved(self) -> bool:
        """Whether the goal is reached."""

    @abstractmethod
    def _make_moves(self, moves: Sequence[str]) -> bool:
        """Move until the goal is reached or a move is blocked; True in the latter case."""

    @abstractmethod
    def _check_proposal(self, plan: MovePlan) -> ProposalCheck:
        """Carry out a proposal on a copy."""

    @abstractmethod
    def _dense(self, plan: MovePlan, agent: str) -> float:
        """The dense reward of carrying ``plan`` of ``agent`` out, on a copy."""

    @abstractmethod
    def _pieces(self) -> Hashable:
        """The places of the pieces."""

    # ---- tasks and prompts ----------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return sample_tasks(self.name, split, count, seed, partial(self._draw, split), max_rejections=20_000)

    def reset(self, task: Task) -> None:
        self._begin()
        self._start(task)
        self._success, self._last = False, "start"
        self._clear_proposal()
        distance = self._distance()
        if not distance:
            state = "solved" if distance == 0 else "unsolvable, or too large to judge"
            raise ValueError(f"task {task.task_id} of {self.name} is {state}")
        self._first_distance = self._best_distance = distance

    def _prompt(self, agent: str) -> list[Message]:
        if self.wording == "full":
            return self._full_prompt(agent)
        words = [*self._board(agent), "last", self._last]
        if agent == PLAN:
            words += ["proposal", *(self._proposal.split() or ["none"]), "check", *self._check]
        return chat(f"{agent} {self.name}", " ".join(words))

    def _full_prompt(self, agent: str) -> list[Message]:
        writes_program = agent == TOOL and self.execution is not None
        form = self._form(agent, self.execution.limits.cpu_s if writes_program and self.execution else None)
        parts = [self._drawing(agent), f"The last moves: {self.last_texts[self._last]}."]
        if agent == PLAN:
            parts.append(prompts.proposal(self._proposal, self._check, self._fault, self.check_texts))
        return chat(f"{self._rules(agent)} {self._limits()}\n\n{form}", "\n\n".join(parts))

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self, agent: str) -> Sequence[Tool]:
        if agent == TOOL and self.execution is not None:
            return (PYTHON,)
        name, description = self.act_tool
        if agent == TOOL:
            name, description = "propose", f"Propose {self.answer_label} to the planner, who decides."
        return (text_tool(name, description, self.answer_label, self._notation(agent), self._line),)

    def _line(self, words: str) -> str:
        """``words`` of the notation, as a message has them."""
        return words if self.wording == "compact" else f"{self.answer_label.capitalize()}: {words}"

    # ---- steps ----------------------------------------------------------------------------------------------------

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        ((agent, text),) = actions.items()
        if agent != TOOL:
            return self._execute(agent, guarded(MALFORMED, self._read, text, agent))
        fault = ""
        if self.execution is not None:
            text, fault = await self._run_program(self.execution, text)
        return self._propose(guarded(MALFORMED, self._read, text, agent), fault)

    def _state(self) -> tuple[Hashable, ...]:
        texts = (self._proposal, self._check, self._fault, self._last)
        return (self._pieces(), *texts, self._first_distance, self._best_distance)

    def anchor_key(self, agent: str) -> Hashable:
        """The board as ``agent`` sees it: neither turn, best distance, last moves nor proposal."""
        return tuple(self._board(agent))

    def _read(self, text: str, agent: str) -> MovePlan:
        if self.wording == "full":
            line = prompts.answer(text, self.answer_label)
            if line is None:
                return MALFORMED
            text = line
        return self._parse(text, agent)

    async def _run_program(self, execution: Executor, text: str) -> tuple[str, str]:
        """The output of the tool agent's program, and how it failed, if it did."""
        source = guarded(None, prompts.fenced_program, text)
        if source is None:
            return "", "there is no closed fenced block with a program"
        result = await execution.result(Job(source, self._input()))
        return (result.text, "") if result.verdict is Verdict.OK else ("", result.verdict.value)

    def _propose(self, plan: MovePlan, fault: str) -> StepResult:
        check = self._check_proposal(plan)
        # Of a malformed proposal, whose words could be anything, nothing is passed on.
        dense = self._dense_reward(TOOL, plan)
        self._proposal = " ".join(plan.words)
        self._plan, self._fault = plan, fault
        self._check = ("malformed",) if plan.malformed else check.words
        self._next_stage()
        return StepResult(
            local={TOOL: self.local_share * (check.progress if dense is None else dense)},
            team=float(check.success),
            done=False,
            success=False,
            info={"malformed": plan.malformed, "blocked": check.blocked, "moves": len(plan.moves)},
        )

    def _dense_reward(self, agent: str, plan: MovePlan) -> float | None:
        """The dense reward of a message whose moves are not made yet; None under ``local_reward=progress``."""
        if self.local_reward == "progress":
            return None
        return self._dense(plan, agent) if plan.moves else MALFORMED_REWARD

    def _execute(self, agent: str, plan: MovePlan) -> StepResult:
        dense = self._dense_reward(agent, plan)
        blocked = self._make_moves(plan.moves)
        distance = self._distance()
        progress = 0.0
        if distance is not None and distance < self._best_distance:
            progress = (self._best_distance - distance) / self._first_distance
            self._best_distance = distance
        self._success = self._solved()
        self._last = "malformed" if plan.malformed else "hit" if blocked else "ok"
        self._clear_proposal()
        self._next_turn(done=self._success)
        return StepResult(
            local={agent: self.local_share * (progress if dense is None else dense)},
            team=float(self._success),
            done=self._done,
            success=self._success,
            info={"malformed": plan.malformed, "blocked": blocked, "moves": len(plan.moves)},
        )

    def _message(self, agent: str, words: str) -> str:
        """A demonstrator's message of ``words`` of the notation, in the form that the agent is asked for."""
        line = self._line(words)
        return fenced(f"print({line!r})") if agent == TOOL and self.execution else line


def make_task(world: str, form_digest: str, split: Split, **data: Any) -> Task:
    """A task of ``world``, whose id derives from the canonical form of its board."""
    return Task(f"{world}-{form_digest}", split, data)
