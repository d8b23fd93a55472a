"""Plan-Path: walk over a grid with walls to a goal (PettingLLMs, arXiv 2510.11062, experiments).

Views, by default: the tool agent sees the whole map, but an old one, on which a share of the walls (``unmapped``) is
missing; the planner sees only the cells around itself, with every wall there, and the goal only when it is near.
Neither can do the other's work: a route by the map may be blocked, and a walker without a map does not know the way.
``tool_view=full planner_view=full`` shows both of them everything, as in the paper.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random
from typing import Any

from ...experience import Split, Task
from ..setting_checks import check_fraction
from ..splits import split_of
from .board import (
    MovePlan,
    annotate_moves,
    canonical_form,
    cell_words,
    distances,
    draw_board,
    form_digest,
    neighbours,
    shortest_path,
    window,
)
from .dense import PLAN_PATH
from .prompts import View
from .two_roles import PLAN, SOLO, TOOL, ProposalCheck, make_task
from .walks import WalkingWorld


class PlanPath(WalkingWorld):
    """A ``size`` x ``size`` grid; each cell is a wall with probability ``walls``; the goal can be reached.

    ``min_distance`` and ``max_distance`` (None: no bound) bound the moves from start to goal.  ``unmapped`` is the
    probability that a wall is missing on the map that the tool agent sees under ``tool_view=map``.
    """

    name = "plan_path"
    dense = PLAN_PATH

    def __init__(
        self,
        *,
        size: int = 10,
        walls: float = 0.22,
        min_distance: int = 4,
        max_distance: int | None = None,
        unmapped: float = 0.15,
        view_radius: int = 3,
        **common: Any,
    ) -> None:
        super().__init__(size=size, view_radius=view_radius, **common)
        if size < 2:
            raise ValueError(f"env.size must be at least 2, got {size}")
        if not 0 <= walls < 0.6:
            raise ValueError(f"env.walls must be in [0, 0.6), got {walls}")
        check_fraction("unmapped", unmapped)
        if not 1 <= min_distance <= 2 * size - 2:
            raise ValueError(f"env.min_distance must be in [1, {2 * size - 2}] for size {size}, got {min_distance}")
        if max_distance is not None and max_distance < min_distance:
            raise ValueError(f"env.max_distance={max_distance} must be at least env.min_distance={min_distance}")
        self.walls_share, self.unmapped_share = walls, unmapped
        self.min_distance, self.max_distance = min_distance, max_distance
        self.walls: frozenset[int] = frozenset()
        self.mapped: frozenset[int] = frozenset()
        self.goal = self.at = 0
        self._to_goal: dict[int, int] = {}
        self._to_goal_by_map: dict[int, int] = {}

    def _draw(self, split: Split, rng: Random) -> Task | None:
        cells = range(self.size**2)
        walls = frozenset(cell for cell in cells if rng.random() < self.walls_share)
        free = [cell for cell in cells if cell not in walls]
        if len(free) < 2:
            return None
        start, goal = rng.sample(free, 2)
        mapped = frozenset(cell for cell in sorted(walls) if rng.random() >= self.unmapped_share)
        distance = distances(self.size, walls, [goal]).get(start, -1)
        if distance < self.min_distance or (self.max_distance is not None and distance > self.max_distance):
            return None
        # The id does not depend on the map: boards that differ in it alone share a split.
        form = form_digest(self.size, canonical_form(self.size, [walls, [start], [goal]]))
        return make_task(self.name, form, split_of(form), walls=walls, mapped=mapped, start=start, goal=goal)

    def _start(self, task: Task) -> None:
        self.walls, self.mapped = task.data["walls"], task.data["mapped"]
        self.at, self.goal = task.data["start"], task.data["goal"]
        self._to_goal = distances(self.size, self.walls, [self.goal])
        self._to_goal_by_map = distances(self.size, self._map(), [self.goal])

    def _map(self) -> frozenset[int]:
        return self.mapped if self.tool_view == "map" else self.walls

    def _view(self, agent: str) -> View:
        visible, walls = frozenset(range(self.size**2)), self._map() if agent == TOOL else self.walls
        if agent == PLAN and self.planner_view == "local":
            visible = window(self.size, self.at, self.view_radius)
        return View(visible, walls & visible, frozenset(), frozenset([self.goal]) & visible, self.at)

    def _board(self, agent: str) -> list[str]:
        words, view = cell_words(self.size), self._view(agent)
        near = ["near"] if len(view.visible) < self.size**2 else []
        goal = ["goal", words[self.goal]] if view.goals else []
        return [*near, "walls", *(words[cell] for cell in sorted(view.walls)), "at", words[self.at], *goal]

    def _rules(self, agent: str) -> str:
        task = "Plan-Path: a walker goes over a grid to a goal, up, down, left or right; walls and the edge block it."
        if agent == SOLO:
            return f"{task} You are the walker: give its steps."
        if agent == TOOL:
            old = " Your map is an old one: some walls are missing on it." if self.tool_view == "map" else ""
            return (
                f"{task} You are the tool agent of a team of two: you propose a route from where the walker stands; "
                f"the walker, your partner, decides.{old}"
            )
        near = " You see only the cells close to you, and every wall there." if self.planner_view == "local" else ""
        return (
            f"{task} You are the planner of a team of two, and the walker: your partner, the tool agent, proposes a "
            f"route, and you give the steps that are taken.{near}"
        )

    def _distance(self) -> int | None:
        return self._to_goal.get(self.at)

    def _potential(self) -> int:
        (row, column), (goal_row, goal_column) = divmod(self.at, self.size), divmod(self.goal, self.size)
        return abs(row - goal_row) + abs(column - goal_column)

    def _solved(self) -> bool:
        return self.at == self.goal

    def _move(self, move: str) -> bool:
        there = neighbours(self.size)[self.at].get(move)
        if there is None or there in self.walls:
            return False
        self.at = there
        return True

    def _check_proposal(self, plan: MovePlan) -> ProposalCheck:
        copy = self.fork()
        blocked = copy._make_moves(plan.moves)
        cell, hit = self._walk_by_map(plan.moves)
        start, end = self._to_goal_by_map[self.at], self._to_goal_by_map.get(cell)
        progress = max(0.0, (start - end) / start) if end is not None else 0.0
        word = "goal" if cell == self.goal else "hit" if hit else "ok"
        return ProposalCheck(copy._solved(), blocked, progress, (word, cell_words(self.size)[cell]))

    def _walk_by_map(self, moves: Sequence[str]) -> tuple[int, bool]:
        """The cell to which ``moves`` lead by the map, and whether a wall of the map stops them there."""
        around, walls, cell = neighbours(self.size), self._map(), self.at
        for move in moves:
            there = around[cell].get(move)
            if there is None or there in walls:
                return cell, True
            cell = there
            if cell == self.goal:
                break
        return cell, False

    def _pieces(self) -> Hashable:
        return (self.walls, self.mapped, self.goal, self.at)

    def picture(self) -> tuple[str, ...]:
        return draw_board(self.size, self.walls, self.at, (), (self.goal,))

    # ---- demonstrators --------------------------------------------------------------------------------------------

    def _expert(self, agent: str, rng: Random) -> tuple[list[str], list[str]]:
        view = self._view(agent)
        if len(view.visible) == self.size**2:
            return [], shortest_path(self.size, view.walls, self.at, [self.goal]) or []
        return [], self._follow(view.visible, view.walls, rng)

    def _follow(self, visible: frozenset[int], walls: frozenset[int], rng: Random) -> list[str]:
        """With a local view: go to a goal in sight, else along the proposal and around the walls that block it."""
        hidden = frozenset(range(self.size**2)) - visible
        if self.goal in visible:
            direct = shortest_path(self.size, walls | hidden, self.at, [self.goal])
            if direct is not None:
                return direct
        route = [self.at]
        around = neighbours(self.size)
        for move in self._plan.moves:
            if move not in around[route[-1]]:
                break
            route.append(around[route[-1]][move])
        last = next((i for i in range(len(route) - 1, 0, -1) if route[i] not in walls), 0)
        if last == 0:
            free = [move for move, there in around[self.at].items() if there not in walls]
            return [rng.choice(free)] if free else []
        # Hidden cells count as free on the route only; a shortest way over them may leave the route and rejoin it.
        blocked = walls | (hidden - frozenset(route))
        for target in range(last, 0, -1):
            if route[target] not in walls:
                moves = shortest_path(self.size, blocked, self.at, [route[target]])
                if moves is not None:
                    return moves
        return []

    def _naive(self, agent: str, rng: Random) -> list[str]:
        if not self._view(agent).goals:
            return list(self._plan.moves)
        (row, column), (goal_row, goal_column) = divmod(self.at, self.size), divmod(self.goal, self.size)
        vertical = ["D" if goal_row > row else "U"] * abs(goal_row - row)
        horizontal = ["R" if goal_column > column else "L"] * abs(goal_column - column)
        return vertical + horizontal if rng.random() < 0.5 else horizontal + vertical

    def _annotate(self, agent: str, opening: Sequence[str], moves: Sequence[str]) -> list[str]:
        return annotate_moves(self.size, self.at, moves)
