"""The two-role workflow of the grid worlds (PettingLLMs, arXiv 2510.11062, section 5): a tool agent proposes, a
planning agent acts.

A turn is: ``tool`` writes a proposal, the world checks it, ``plan`` sees its own view, the proposal and the check, and
writes moves.  Only the planner's moves change the world; they stop at the first one that is blocked.  A team of one
(``team=solo``) sees the board and writes moves.

Rewards.  The team reward of a planner's (or solo agent's) message is 1 if the goal is reached after it, else 0.  The
team reward of a tool agent's message is 1 if the goal is reached when its proposal is carried out on a copy of the
world.  The local reward is a small share of the progress towards the goal in solver distance: of the planner, beyond
the best distance of the episode so far (going back and forth earns nothing); of the tool agent, that its proposal
would make on the map that it sees.  No reward is negative, so that trying never costs more than silence.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, get_args

from ...experience import Message, Split, Task
from ...sandbox import Job, Limits, Sandbox, Verdict
from ..base import Skill, StepResult
from ..checks import check_at_least, check_choice, check_fraction
from ..execution import Execution
from ..judging import guarded
from ..task_sampling import sample_tasks
from ..turns import TurnTakingWorld, chat
from . import prompts
from .board import OPPOSITE
from .notation import MALFORMED, MovePlan, parse_plan
from .prompts import View

TOOL, PLAN, SOLO = "tool", "plan", "solo"
PlannerView = Literal["full", "local"]
ToolView = Literal["full", "map"]
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
    """Notation and rewards shared by the grid worlds; a world adds its board.

    ``team``: ``pair`` (agents ``tool`` and ``plan``) or ``solo``.  ``tool_view`` and ``planner_view``: each agent's
    view of the board, see the worlds.  ``tool_message``: ``plan``, or ``program`` (Python that prints one, run in
    ``sandbox`` with ``program_seconds`` of CPU time).  ``wording``: ``compact`` (the notation) or ``full`` (rules,
    drawn boards).  ``local_share``: the weight of progress, 0 for outcome-only rewards.
    """

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
        for key, (value, values) in choices.items():
            check_choice(self.name, key, value, values)
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
            execution=Execution(sandbox, Limits(cpu_s=program_seconds)) if programs and sandbox else None,
        )
        check_at_least("max_moves", max_moves, 1)
        check_at_least("view_radius", view_radius, 0)
        check_fraction("local_share", local_share)
        self.size, self.max_moves = size, max_moves
        self.tool_view, self.planner_view, self.view_radius = tool_view, planner_view, view_radius
        self.wording, self.local_share = wording, local_share
        self._success, self._last = False, "start"
        self._clear_proposal()
        self._first_distance = self._best_distance = 1

    def _clear_proposal(self) -> None:
        self._proposal, self._plan, self._fault = "", MovePlan(), ""
        self._check: tuple[str, ...] = ("none",)

    # ---- for the world to add --------------------------------------------------------------------------------------

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
    def _view(self, agent: str) -> View:
        """The board as ``agent`` sees it."""

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
    def _check_proposal(self, plan: MovePlan) -> ProposalCheck:
        """Carry out a proposal on a copy."""

    @abstractmethod
    def _pieces(self) -> Hashable:
        """The places of the pieces."""

    @abstractmethod
    def _expert(self, agent: str, rng: Random) -> tuple[list[str], list[str]]:
        """A good plan from ``agent``'s view: its opening words, and its moves."""

    @abstractmethod
    def _naive(self, agent: str, rng: Random) -> list[str]:
        """Moves straight towards the goal, whatever the obstacles."""

    @abstractmethod
    def _annotate(self, agent: str, opening: Sequence[str], moves: Sequence[str]) -> list[str]:
        """``moves``, each with the cell to which it leads in ``agent``'s view."""

    # ---- tasks and prompts ----------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return sample_tasks(self.name, split, count, seed, self._draw, max_rejections=20_000)

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
        example = prompts.example(self.size, agent == TOOL and self.boxes_have_names)
        how = prompts.MOVES_LINE.format(example=example)
        if agent == TOOL and self.execution is not None:
            how = prompts.PROGRAM.format(size=self.size, seconds=self.execution.limits.cpu_s, example=example)
        limits = f"At most {self.max_moves} moves are made each time, and the team has {self.horizon} turns."
        parts = [prompts.board(self.size, self._view(agent)), f"The last moves: {prompts.LAST[self._last]}."]
        if agent == PLAN:
            parts.append(prompts.proposal(self._proposal, self._check, self._fault))
        return chat(f"{self._rules(agent)} {limits}\n\n{how}", "\n\n".join(parts))

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

    def anchor_key(self) -> Hashable:
        """The places of the pieces: neither turn, best distance nor proposal."""
        return self._pieces()

    def _read(self, text: str, agent: str) -> MovePlan:
        if self.wording == "full":
            line = prompts.answer(text)
            if line is None:
                return MALFORMED
            text = line
        return parse_plan(text, self.size, self.max_moves, may_name_box=agent == TOOL and self.boxes_have_names)

    async def _run_program(self, execution: Execution, text: str) -> tuple[str, str]:
        """The output of the tool agent's program, and how it failed, if it did."""
        source = guarded(None, prompts.fenced_program, text)
        if source is None:
            return "", "there is no closed fenced block with a program"
        result = await execution.result(Job(source, self._view(TOOL).json(self.size)))
        return (result.text, "") if result.verdict is Verdict.OK else ("", result.verdict.value)

    def _propose(self, plan: MovePlan, fault: str) -> StepResult:
        check = self._check_proposal(plan)
        # Of a malformed proposal, whose words could be anything, nothing is passed on.
        self._proposal = " ".join(plan.words)
        self._plan, self._fault = plan, fault
        self._check = ("malformed",) if plan.malformed else check.words
        self._next_stage()
        return StepResult(
            local={TOOL: self.local_share * check.progress},
            team=float(check.success),
            done=False,
            success=False,
            info={"malformed": plan.malformed, "blocked": check.blocked, "moves": len(plan.moves)},
        )

    def _execute(self, agent: str, plan: MovePlan) -> StepResult:
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
            local={agent: self.local_share * progress},
            team=float(self._success),
            done=self._done,
            success=self._success,
            info={"malformed": plan.malformed, "blocked": blocked, "moves": len(plan.moves)},
        )

    def _make_moves(self, moves: Sequence[str]) -> bool:
        """Move until the goal is reached or a move is blocked; True in the latter case."""
        for move in moves:
            if not self._move(move):
                return True
            if self._solved():
                break
        return False

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Experts mostly note the cell after each move; the others mostly do not, and make mistakes.

        A novice is naive (heads straight for the goal), hasty (stops after a few moves) or clumsy (each move random
        with a probability drawn from .3 to .9).  A flawed demonstrator is naive, confused (takes each direction for its
        opposite) or clumsier still (.5 to 1).
        """
        opening, moves = self._expert(agent, rng)
        if skill == "novice":
            kind = rng.random()
            if kind < 0.4:
                moves = self._naive(agent, rng)
            elif kind < 0.6:
                moves = moves[: rng.randint(1, 2)]
            else:
                moves = _slip(moves, rng.uniform(0.3, 0.9), rng)
        elif skill == "flawed":
            kind = rng.random()
            if kind < 0.25:
                moves = self._naive(agent, rng)
            elif kind < 0.75:
                moves = [OPPOSITE[move] for move in moves]
            else:
                moves = _slip(moves, rng.uniform(0.5, 1.0), rng)
        moves = moves[: self.max_moves]
        annotated = rng.random() < {"expert": 0.85, "novice": 0.15, "flawed": 0.1}[skill]
        words = " ".join([*opening, *(self._annotate(agent, opening, moves) if annotated else moves)])
        if self.wording == "compact":
            return words
        line = f"Moves: {words}"
        return f"```python\nprint({line!r})\n```" if agent == TOOL and self.execution else line


def _slip(moves: Sequence[str], share: float, rng: Random) -> list[str]:
    """``moves``, each replaced by a random one with probability ``share``."""
    return [rng.choice("UDLR") if rng.random() < share else move for move in moves]


def make_task(world: str, form_digest: str, split: Split, **data: Any) -> Task:
    """A task of ``world``, whose id derives from the canonical form of its board."""
    return Task(f"{world}-{form_digest}", split, data)
