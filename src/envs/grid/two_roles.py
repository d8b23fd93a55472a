"""The two-role workflow of the grid worlds (PettingLLMs, arXiv 2510.11062, section 5): a tool agent proposes, a
planning agent acts.

A turn is: ``tool`` writes a proposal, the world checks it, ``plan`` sees its own view, the proposal and the check, and
writes moves.  Only the planner's moves change the world; they stop at the first one that is blocked.  A team of one
(``team=solo``) sees the board and writes moves.

Rewards.  The team reward of a planner's (or solo agent's) message is 1 if the goal is reached after it, else 0.  The
team reward of a tool agent's message is 1 if the goal is reached when its proposal is carried out on a copy of the
world.  The local reward is a small share of the progress towards the goal in solver distance: of the planner, beyond
the best distance the episode has seen (going back and forth earns nothing); of the tool agent, that its proposal
would make on the map that it was shown.  No reward is negative, so that trying never costs more than silence.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Self, get_args

from ...experience import Message, Split, Task
from ...sandbox import Job, Limits, Sandbox, Verdict
from ..base import Skill, StepResult, TeamEnv
from ..checks import check_agent, check_choice, check_least, check_share, check_speakers
from ..drawing import different
from ..execution import Execution
from . import wording as full
from .board import MOVES, OPPOSITE, Plan, parse_plan
from .wording import Sight

TOOL, PLAN, SOLO = "tool", "plan", "solo"
PlannerView = Literal["full", "local"]
ToolView = Literal["full", "map"]
ToolMessage = Literal["plan", "program"]
Wording = Literal["compact", "full"]


@dataclass(frozen=True)
class DryRun:
    """What carrying out a proposal would do.

    ``success`` and ``blocked`` on the world as it is; ``progress`` in [0, 1] and ``check`` (words) on the map that the
    tool agent was shown.
    """

    success: bool
    blocked: bool
    progress: float
    check: tuple[str, ...]


class TwoRoleWorld(TeamEnv):
    """Turn taking, notation and rewards shared by the grid worlds; a world adds its board.

    ``team``: ``pair`` (agents ``tool`` and ``plan``) or ``solo``.  ``tool_view`` and ``planner_view``: what each agent
    is shown, see the worlds.  ``tool_message``: ``plan``, or ``program`` (Python that prints one, run in ``sandbox``
    with ``program_seconds`` of CPU time).  ``wording``: ``compact`` (the notation) or ``full`` (rules, drawn boards).
    ``local_share``: the weight of progress, 0 for outcome-only rewards.
    """

    name: str
    boxes_have_names = False
    """Whether a proposal may begin with ``box CELL``."""

    def __init__(
        self,
        *,
        size: int,
        horizon: int,
        max_moves: int,
        team: Literal["pair", "solo"],
        tool_view: ToolView,
        planner_view: PlannerView,
        view_radius: int,
        tool_message: ToolMessage,
        wording: Wording,
        sandbox: Sandbox | None,
        program_seconds: float,
        local_share: float,
    ) -> None:
        choices: dict[str, tuple[str, tuple[str, ...]]] = {
            "team": (team, ("pair", "solo")),
            "tool_view": (tool_view, ("full", "map")),
            "planner_view": (planner_view, ("full", "local")),
            "tool_message": (tool_message, get_args(ToolMessage)),
            "wording": (wording, get_args(Wording)),
        }
        for key, (value, known) in choices.items():
            check_choice(self.name, key, value, known)
        programs = team == "pair" and tool_message == "program"
        if programs and wording != "full":
            raise ValueError("env.tool_message=program: only env.wording=full tells the tool agent to write a program")
        if programs and sandbox is None:
            raise ValueError(
                "env.tool_message=program: the tool agent's programs need a sandbox to run in; give "
                "env.sandbox={_target_: troupe.sandbox.LocalSandbox}"
            )
        for key, number, least in (
            ("horizon", horizon, 1),
            ("max_moves", max_moves, 1),
            ("view_radius", view_radius, 0),
        ):
            check_least(key, number, least)
        check_share("local_share", local_share)
        self.size, self.horizon, self.max_moves = size, horizon, max_moves
        self.agents = (TOOL, PLAN) if team == "pair" else (SOLO,)
        self.tool_view, self.planner_view, self.view_radius = tool_view, planner_view, view_radius
        self.wording, self.local_share = wording, local_share
        self._programs = Execution(sandbox, Limits(cpu_s=program_seconds)) if programs and sandbox else None
        self.turn, self._acting, self._done, self._success = 0, 0, True, False
        self._proposal, self._last = "", "start"
        self._check: tuple[str, ...] = ("none",)
        self._fault = ""
        self._plan = Plan()
        self._first_distance = self._best_distance = 1

    # ---- what a world adds ----------------------------------------------------------------------------------------

    @abstractmethod
    def _draw(self, rng: Random) -> Task | None:
        """A random task of any split, or None where the draw failed."""

    @abstractmethod
    def _start(self, task: Task) -> None:
        """Put the pieces on the board."""

    @abstractmethod
    def _board(self, agent: str) -> list[str]:
        """The board's words as ``agent`` sees it."""

    @abstractmethod
    def _sight(self, agent: str) -> Sight:
        """What ``agent`` sees of the board."""

    @abstractmethod
    def _rules(self, agent: str) -> str:
        """The world and the agent's part in it, in full wording."""

    @abstractmethod
    def _distance(self) -> int | None:
        """The fewest moves to the goal from here; None where it cannot be reached any more."""

    @abstractmethod
    def _solved(self) -> bool:
        """Whether the goal is reached."""

    @abstractmethod
    def _move(self, move: str) -> bool:
        """Make one move; False, and no change, where it is blocked."""

    @abstractmethod
    def _dry_run(self, plan: Plan) -> DryRun:
        """Carry out a proposal on a copy."""

    @abstractmethod
    def _pieces(self) -> Hashable:
        """Where the pieces are."""

    @abstractmethod
    def _expert(self, agent: str, rng: Random) -> tuple[list[str], list[str]]:
        """A good plan from what ``agent`` sees: its opening words, and its moves."""

    @abstractmethod
    def _naive(self, agent: str, rng: Random) -> list[str]:
        """The moves of somebody who heads straight for the goal and does not look for obstacles."""

    @abstractmethod
    def _aloud(self, agent: str, opening: Sequence[str], moves: Sequence[str]) -> list[str]:
        """``moves`` with the cells they lead to, as ``agent`` imagines them."""

    # ---- the contract ---------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return different(self.name, split, count, seed, self._draw, patience=20_000)

    def reset(self, task: Task) -> None:
        self._start(task)
        self.turn, self._acting, self._done, self._success = 0, 0, False, False
        self._proposal, self._last = "", "start"
        self._check, self._fault = ("none",), ""
        self._plan = Plan()
        distance = self._distance()
        if not distance:
            what = "solved" if distance == 0 else "unsolvable, or too large to judge"
            raise ValueError(f"task {task.task_id} of {self.name} is {what}")
        self._first_distance = self._best_distance = distance

    def next_agents(self) -> tuple[str, ...]:
        return () if self._done else (self.agents[self._acting],)

    def observe(self, agent: str) -> list[Message]:
        check_agent(self.name, self.agents, agent)
        if self.wording == "full":
            return self._told(agent)
        words = [*self._board(agent), "last", self._last]
        if agent == PLAN:
            words += ["proposal", *(self._proposal.split() or ["none"]), "check", *self._check]
        return [{"role": "system", "content": f"{agent} {self.name}"}, {"role": "user", "content": " ".join(words)}]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        acting = self.next_agents()
        check_speakers(self.name, acting, actions)
        ((agent, text),) = actions.items()
        if agent != TOOL:
            return self._execute(agent, self._read(text, agent))
        fault = ""
        if self._programs is not None:
            text, fault = await self._printed(self._programs, text)
        return self._propose(self._read(text, agent), fault)

    async def open(self) -> Mapping[str, bool | int | str]:
        return await self._programs.open() if self._programs else {}

    async def close(self) -> None:
        if self._programs:
            await self._programs.close()

    def fork(self) -> Self:
        # No field is ever changed in place, and the worlds draw no noise.
        return copy.copy(self)

    def state_key(self) -> Hashable:
        told = (self._proposal, self._check, self._fault, self._last)
        return (self.turn, self._acting, self._done, self._pieces(), *told, self._first_distance, self._best_distance)

    # ---- what is said ---------------------------------------------------------------------------------------------

    def _told(self, agent: str) -> list[Message]:
        """The prompt in full wording."""
        example = full.example(self.size, agent == TOOL and self.boxes_have_names)
        how = full.MOVES_LINE.format(example=example)
        if agent == TOOL and self._programs is not None:
            how = full.PROGRAM.format(size=self.size, seconds=self._programs.limits.cpu_s, example=example)
        most = f"At most {self.max_moves} moves are made each time, and the team has {self.horizon} turns."
        told = [full.board(self.size, self._sight(agent)), f"The last moves: {full.LAST[self._last]}."]
        if agent == PLAN:
            told.append(full.proposal(self._proposal, self._check, self._fault))
        return [
            {"role": "system", "content": f"{self._rules(agent)} {most}\n\n{how}"},
            {"role": "user", "content": "\n\n".join(told)},
        ]

    def _read(self, text: str, agent: str) -> Plan:
        if self.wording == "full":
            line = full.answer(text)
            if line is None:
                return Plan(malformed=True)
            text = line
        return parse_plan(text, self.size, self.max_moves, may_name_box=agent == TOOL and self.boxes_have_names)

    async def _printed(self, programs: Execution, text: str) -> tuple[str, str]:
        """What the tool agent's program prints, and how it failed, if it did."""
        source = full.fenced(text)
        if source is None:
            return "", "there is no closed fenced block with a program"
        result = await programs.result(Job(source, self._sight(TOOL).json(self.size)))
        return (result.text, "") if result.verdict is Verdict.OK else ("", result.verdict.value)

    # ---- rewards --------------------------------------------------------------------------------------------------

    def _propose(self, plan: Plan, fault: str = "") -> StepResult:
        run = self._dry_run(plan)
        # Only what counts is passed on: of a malformed proposal, whose words could be anything, nothing.
        self._proposal = " ".join(plan.words)
        self._plan, self._check = plan, ("malformed",) if plan.malformed else run.check
        self._fault = fault
        self._acting = 1
        return StepResult(
            local={TOOL: self.local_share * run.progress},
            team=float(run.success),
            done=False,
            success=False,
            info={"malformed": plan.malformed, "blocked": run.blocked, "moves": len(plan.moves)},
        )

    def _execute(self, agent: str, plan: Plan) -> StepResult:
        blocked = self._carry_out(plan.moves)
        distance = self._distance()
        progress = 0.0
        if distance is not None and distance < self._best_distance:
            progress = (self._best_distance - distance) / self._first_distance
            self._best_distance = distance
        self._success = self._solved()
        self._last = "malformed" if plan.malformed else "hit" if blocked else "ok"
        self._proposal, self._check, self._fault, self._plan = "", ("none",), "", Plan()
        self.turn += 1
        self._acting = 0
        self._done = self._success or self.turn >= self.horizon
        return StepResult(
            local={agent: self.local_share * progress},
            team=float(self._success),
            done=self._done,
            success=self._success,
            info={"malformed": plan.malformed, "blocked": blocked, "moves": len(plan.moves)},
        )

    def _carry_out(self, moves: Sequence[str]) -> bool:
        """Move until the goal is reached or a move is blocked; True in the latter case."""
        for move in moves:
            if not self._move(move):
                return True
            if self._solved():
                break
        return False

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Experts mostly think aloud (name the cells); the others mostly do not, and err.

        A novice is naive (heads straight for the goal), hasty (stops after a few moves) or clumsy (each move random
        with a probability drawn from .3 to .9).  A bungler is naive, confused (takes each direction for its opposite)
        or clumsier still (.5 to 1).
        """
        opening, moves = self._expert(agent, rng)
        if skill == "novice":
            kind = rng.random()
            if kind < 0.4:
                moves = self._naive(agent, rng)
            elif kind < 0.6:
                moves = moves[: rng.randint(1, 2)]
            else:
                moves = _slipped(moves, rng.uniform(0.3, 0.9), rng)
        elif skill == "bungler":
            kind = rng.random()
            if kind < 0.25:
                moves = self._naive(agent, rng)
            elif kind < 0.75:
                moves = [OPPOSITE[move] for move in moves]
            else:
                moves = _slipped(moves, rng.uniform(0.5, 1.0), rng)
        moves = moves[: self.max_moves]
        aloud = rng.random() < {"expert": 0.85, "novice": 0.15, "bungler": 0.1}[skill]
        words = " ".join([*opening, *(self._aloud(agent, opening, moves) if aloud else moves)])
        if self.wording == "compact":
            return words
        line = f"Moves: {words}"
        return f"```python\nprint({line!r})\n```" if agent == TOOL and self._programs else line


def _slipped(moves: Sequence[str], share: float, rng: Random) -> list[str]:
    """``moves``, each replaced by a random one with probability ``share``."""
    return [rng.choice("UDLR") if rng.random() < share else move for move in moves]


def make_task(name: str, form_digest: str, split: Split, **data: Any) -> Task:
    """A task whose id derives from the canonical form of its board; a split is decided by content too."""
    return Task(f"{name}-{form_digest}", split, data)


def vocabulary(size: int) -> list[str]:
    """Every word that grids up to ``size`` use in observations and messages."""
    cells = [f"{row},{column}" for row in range(size) for column in range(size)]
    words = "last start ok hit malformed proposal none check goal at box walls near tool plan solo".split()
    return [*MOVES, *words, *cells]
