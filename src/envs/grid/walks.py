"""Grid worlds in which a piece walks: moves, views, prompts and demonstrators of Sokoban and Plan-Path."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from random import Random
from typing import Any, ClassVar, Literal, Self

from ...experience import Task
from ..base import Skill
from ..setting_checks import check_at_least, check_choice
from . import prompts
from .board import OPPOSITE, MovePlan, parse_plan
from .dense import WalkReward
from .prompts import View
from .two_roles import TOOL, TwoRoleWorld

PlannerView = Literal["full", "local"]
ToolView = Literal["full", "map"]


class WalkingWorld(TwoRoleWorld):
    """``tool_view`` and ``planner_view``: each agent's view of the board, see the worlds.  ``max_moves``: of a message.

    The other settings are those of :class:`~.two_roles.TwoRoleWorld`.
    """

    boxes_have_names = False
    """Whether a proposal may begin with ``box CELL``."""
    dense: ClassVar[WalkReward]
    """Under ``local_reward=dense``."""

    def __init__(
        self,
        *,
        view_radius: int,
        max_moves: int = 16,
        tool_view: ToolView = "map",
        planner_view: PlannerView = "local",
        **common: Any,
    ) -> None:
        check_choice(self.name, "tool_view", tool_view, ("full", "map"))
        check_choice(self.name, "planner_view", planner_view, ("full", "local"))
        super().__init__(**common)
        check_at_least("max_moves", max_moves, 1)
        check_at_least("view_radius", view_radius, 0)
        self.max_moves = max_moves
        self.tool_view, self.planner_view, self.view_radius = tool_view, planner_view, view_radius
        self._move_count = 0

    # ---- for the world to add --------------------------------------------------------------------------------------

    @abstractmethod
    def _view(self, agent: str) -> View:
        """The board as ``agent`` sees it."""

    @abstractmethod
    def _move(self, move: str) -> bool:
        """Make one move; False, and no change, where it is blocked."""

    @abstractmethod
    def _potential(self) -> int:
        """The distance whose negative is the potential of dense rewards."""

    @abstractmethod
    def _expert(self, agent: str, rng: Random) -> tuple[list[str], list[str]]:
        """A good plan from ``agent``'s view: its opening words, and its moves."""

    @abstractmethod
    def _naive(self, agent: str, rng: Random) -> list[str]:
        """Moves straight towards the goal, whatever the obstacles."""

    @abstractmethod
    def _annotate(self, agent: str, opening: Sequence[str], moves: Sequence[str]) -> list[str]:
        """``moves``, each with the cell to which it leads in ``agent``'s view."""

    # ---- prompts and moves ----------------------------------------------------------------------------------------

    def _drawing(self, agent: str) -> str:
        return prompts.board(self.size, self._view(agent))

    def _input(self) -> str:
        return self._view(TOOL).json(self.size)

    def _limits(self) -> str:
        return f"At most {self.max_moves} moves are made each time, and the team has {self.horizon} turns."

    def _form(self, agent: str, program_seconds: float | None) -> str:
        example = prompts.example(self.size, agent == TOOL and self.boxes_have_names)
        called = self.tool_format is not None
        if program_seconds is None:
            return f"{prompts.DIRECTIONS} {prompts.ending(self.answer_label, example, called=called)}"
        details = prompts.PROGRAM.format(size=self.size, seconds=program_seconds, example=example)
        return prompts.program("them", details, called=called)

    def _parse(self, text: str, agent: str) -> MovePlan:
        return parse_plan(text, self.size, self.max_moves, may_name_box=agent == TOOL and self.boxes_have_names)

    def _notation(self, agent: str) -> str:
        box = "box and its row,column, then " if agent == TOOL and self.boxes_have_names else ""
        return f"{box}U, D, L or R each, separated by blanks"

    def reset(self, task: Task) -> None:
        self._move_count = 0
        super().reset(task)

    def _state(self) -> tuple[Hashable, ...]:
        # The number of moves so far decides about the dense reward of the shortest way, and about nothing else.
        return (*super()._state(), self._move_count) if self.local_reward == "dense" else super()._state()

    def _make_moves(self, moves: Sequence[str]) -> bool:
        for move in moves:
            self._move_count += 1
            if not self._move(move):
                return True
            if self._solved():
                break
        return False

    def _dense(self, plan: MovePlan, agent: str) -> float:
        return self._dense_walk(self.fork(), plan.moves)

    def _dense_walk(self, copy: Self, moves: Sequence[str]) -> float:
        """The dense reward of ``moves`` on ``copy``, which they change."""
        total, homes = 0.0, copy._homes()
        for move in moves:
            before, blocked = copy._potential(), copy._make_moves([move])
            solved, homes_before, homes = copy._solved(), homes, copy._homes()
            total += self.dense.of(
                blocked=blocked,
                before=before,
                after=copy._potential(),
                homes=homes - homes_before,
                solved=solved,
                shortest=copy._move_count == self._first_distance,
            )
            if blocked or solved:
                break
        return total

    def _homes(self) -> int:
        """Boxes on goals."""
        return 0

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
        return self._message(agent, words)


def _slip(moves: Sequence[str], share: float, rng: Random) -> list[str]:
    """``moves``, each replaced by a random one with probability ``share``."""
    return [rng.choice("UDLR") if rng.random() < share else move for move in moves]
