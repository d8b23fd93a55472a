"""Sokoban: push boxes onto goals (PettingLLMs, arXiv 2510.11062, experiments).

Views, by default: the tool agent sees the map with boxes and goals, but not the worker; it proposes the pushes of a box
(``box 2,2 D 3,2 R 3,3``: the box, then each direction and the box's next cell).  The planner is the worker: it sees
only the cells next to itself, and writes the worker's moves, with the walks between the pushes.  Neither can do the
other's work.  ``tool_view=full planner_view=full`` shows both of them everything, as in
the paper.

A proposal is carried out (for the outcome of the tool agent's message) by the world walking the worker to the pushing
side of the box, shortest way first, before each push, within the number of moves that a planner's message may have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from random import Random
from typing import Any

from ...experience import Split, Task
from ..splits import split_of
from .board import (
    MOVES,
    OPPOSITE,
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
from .dense import SOKOBAN
from .prompts import View
from .sokoban_solver import Position, SearchLimitError, Solver, move_worker
from .two_roles import PLAN, SOLO, TOOL, ProposalCheck, make_task
from .walks import WalkingWorld


@lru_cache(maxsize=1024)  # a table of a small room takes kilobytes, the largest allowed a megabyte or two
def _solver(size: int, walls: frozenset[int], goals: frozenset[int]) -> Solver:
    return Solver(size, walls, goals)


@cache
def _steps(size: int) -> tuple[list[tuple[int, int | None]], ...]:
    """By cell: the cells beside it, each with the one on the other side."""
    return tuple([(there, around.get(OPPOSITE[move])) for move, there in around.items()] for around in neighbours(size))


class Sokoban(WalkingWorld):
    """A ``size`` x ``size`` room whose border is wall, with up to ``inner_walls`` walls inside and ``boxes`` boxes.

    ``min_moves`` and ``max_solution`` bound the shortest solution in moves.
    """

    name = "sokoban"
    dense = SOKOBAN
    boxes_have_names = True

    def __init__(
        self,
        *,
        size: int = 6,
        boxes: int = 1,
        inner_walls: int = 4,
        min_moves: int = 4,
        max_solution: int = 16,
        view_radius: int = 1,
        **common: Any,
    ) -> None:
        super().__init__(size=size, view_radius=view_radius, **common)
        if size < 4:
            raise ValueError(f"env.size must be at least 4 (the border is wall), got {size}")
        inside = (size - 2) ** 2
        if boxes < 1 or inner_walls < 0 or 2 * boxes + inner_walls + 1 > inside:
            raise ValueError(
                f"env.boxes={boxes} with env.inner_walls={inner_walls} do not fit a room of {inside} cells"
            )
        if not 1 <= min_moves <= max_solution:
            raise ValueError(f"env.min_moves={min_moves} must be in [1, env.max_solution={max_solution}]")
        self.box_count, self.inner_walls = boxes, inner_walls
        self.min_moves, self.max_solution = min_moves, max_solution
        last = size - 1
        self._inside = [r * size + c for r in range(1, last) for c in range(1, last)]
        self._border = frozenset(range(size**2)) - frozenset(self._inside)
        self.walls: frozenset[int] = self._border
        self.boxes: frozenset[int] = frozenset()
        self.goals: frozenset[int] = frozenset()
        self.worker = 0

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def _draw(self, split: Split, rng: Random) -> Task | None:
        """Reverse play: start solved, walk and pull at random; the solver then proves the way back."""
        cells = rng.sample(self._inside, rng.randint(0, self.inner_walls) + self.box_count + 1)
        goals = frozenset(cells[1 : 1 + self.box_count])
        walls = self._border | frozenset(cells[1 + self.box_count :])
        worker, boxes = self._pull(rng, walls, cells[0], goals)
        # The tool agent does not see the worker, so boards that differ in the worker alone share a split.
        if boxes == goals or split != split_of(
            form_digest(self.size, canonical_form(self.size, [walls, boxes, goals]))
        ):  # before the search, which takes longer
            return None
        try:
            distance = _solver(self.size, walls, goals).distance(worker, boxes)
        except SearchLimitError:
            return None
        if distance is None or not self.min_moves <= distance <= self.max_solution:
            return None
        form = form_digest(self.size, canonical_form(self.size, [walls, [worker], boxes, goals]))
        return make_task(
            self.name, form, split, walls=walls, worker=worker, boxes=boxes, goals=goals, distance=distance
        )

    def _pull(self, rng: Random, walls: frozenset[int], worker: int, boxes: frozenset[int]) -> Position:
        """Some tens of steps, of which most beside a box pull it along."""
        blocked, free = walls | boxes, dict[int, list[tuple[int, int | None]]]()
        for _ in range(rng.randint(10, 30) * len(boxes)):
            if (steps := free.get(worker)) is None:
                steps = free[worker] = [step for step in _steps(self.size)[worker] if step[0] not in blocked]
            if not (count := len(steps)):
                break
            bits = count.bit_length()
            while (drawn := rng.getrandbits(bits)) >= count:  # rng.choice, whose calls would take most of the time
                pass
            there, behind = steps[drawn]
            if behind in boxes and rng.random() < 0.7:
                boxes = boxes - {behind} | {worker}
                blocked, free = walls | boxes, {}
            worker = there
        return worker, boxes

    # ---- the board ------------------------------------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        self.walls, self.boxes, self.goals = task.data["walls"], task.data["boxes"], task.data["goals"]
        self.worker = task.data["worker"]

    def _board(self, agent: str) -> list[str]:
        words, view = cell_words(self.size), self._view(agent)
        board = ["near"] if self._is_local(agent) else []
        for name, cells in (("walls", view.walls - self._border), ("box", view.boxes), ("goal", view.goals)):
            board += [name, *(words[cell] for cell in sorted(cells))]
        return board if view.at is None else [*board, "at", words[view.at]]

    def _view(self, agent: str) -> View:
        board = frozenset(range(self.size**2))
        visible = window(self.size, self.worker, self.view_radius) if self._is_local(agent) else board
        at = None if agent == TOOL and self.tool_view == "map" else self.worker
        return View(visible, self.walls & visible, self.boxes & visible, self.goals & visible, at)

    def _rules(self, agent: str) -> str:
        task = (
            "Sokoban: a worker pushes every box onto a goal. The worker steps up, down, left or right; stepping into a "
            "box pushes it one cell on, if the cell behind it is free. Boxes cannot be pulled."
        )
        if agent == SOLO:
            return f"{task} You are the worker: give the worker's steps."
        if agent == TOOL:
            blind = " You do not see the worker." if self.tool_view == "map" else ""
            return (
                f"{task} You are the tool agent of a team of two: you propose the pushes of one box, which box first, "
                f"then the direction of each push; the worker, your partner, walks and pushes.{blind}"
            )
        near = " You see only the cells close to you." if self._is_local(agent) else ""
        return (
            f"{task} You are the planner of a team of two, and the worker: your partner, the tool agent, proposes the "
            f"pushes of a box, and you give every step, the walks between the pushes included.{near}"
        )

    def _is_local(self, agent: str) -> bool:
        return agent == PLAN and self.planner_view == "local"

    def _distance(self) -> int | None:
        try:
            return _solver(self.size, self.walls, self.goals).distance(self.worker, self.boxes)
        except SearchLimitError:
            return None  # a position too large to judge earns no progress

    def _potential(self) -> int:
        """Over the boxes, the moves to the nearest goal without walls, added up."""
        goals = [divmod(goal, self.size) for goal in self.goals]
        boxes = [divmod(box, self.size) for box in self.boxes]
        return sum(min(abs(r - to_r) + abs(c - to_c) for to_r, to_c in goals) for r, c in boxes)

    def _homes(self) -> int:
        return len(self.boxes & self.goals)

    def _solved(self) -> bool:
        return self.boxes == self.goals

    def _move(self, move: str) -> bool:
        after = move_worker(self.size, self.walls, self.worker, self.boxes, move)
        if after is None:
            return False
        self.worker, self.boxes = after
        return True

    def _check_proposal(self, plan: MovePlan) -> ProposalCheck:
        copy = self.fork()
        blocked, _ = copy._push(plan)
        before, after = self._distance(), copy._distance()
        progress = max(0.0, (before - after) / before) if before and after is not None else 0.0
        word = "goal" if copy._solved() else "hit" if blocked else "ok"
        return ProposalCheck(copy._solved(), blocked, progress, (word,))

    def _dense(self, plan: MovePlan, agent: str) -> float:
        if agent != TOOL:
            return super()._dense(plan, agent)
        blocked, made = self.fork()._push(plan)
        return self._dense_walk(self.fork(), made) + blocked * self.dense.blocked

    def _push(self, plan: MovePlan) -> tuple[bool, list[str]]:
        """Carry out a proposal, walking the worker to the pushing side each time: whether a push is blocked, and the
        moves that are made.

        Walks and pushes together are at most ``max_moves``, as a planner's message is: a push beyond is not made.
        """
        box, made = self._box_of(plan), list[str]()
        for direction in plan.moves:
            walk = None if box is None else self._walk(self.walls | self.boxes, self.worker, box, direction)
            if box is None or walk is None:
                return True, made
            if len(made) + len(walk) + 1 > self.max_moves:
                break
            for move in [*walk, direction]:
                if not self._move(move):
                    return True, made
                made.append(move)
            box = neighbours(self.size)[box][direction]
            if self._solved():
                break
        return False, made

    def _box_of(self, plan: MovePlan) -> int | None:
        if plan.box is not None:
            return plan.box if plan.box in self.boxes else None
        return min(self.boxes - self.goals, default=None)

    def _walk(self, blocked: frozenset[int], worker: int, box: int, direction: str) -> list[str] | None:
        """Moves to the cell from which ``box`` is pushed in ``direction``; None where there is no way."""
        side = neighbours(self.size)[box].get(OPPOSITE[direction])
        if side is None or side in blocked:
            return None
        return shortest_path(self.size, blocked, worker, [side])

    def _pieces(self) -> Hashable:
        return (self.walls, self.goals, self.boxes, self.worker)

    def picture(self) -> tuple[str, ...]:
        return draw_board(self.size, self.walls, self.worker, self.boxes, self.goals)

    # ---- demonstrators --------------------------------------------------------------------------------------------

    def _expert(self, agent: str, rng: Random) -> tuple[list[str], list[str]]:
        if agent == TOOL:
            box, pushes = self._best_pushes()
            return ["box", cell_words(self.size)[box]], pushes
        if self._is_local(agent):
            return [], self._follow(rng)
        return [], _solver(self.size, self.walls, self.goals).solution(self.worker, self.boxes) or []

    def _best_pushes(self) -> tuple[int, list[str]]:
        """The first box to push and its pushes, in a solution of fewest pushes, from the tool agent's view."""
        start: State = (self.boxes, None if self.tool_view == "map" else self.worker)
        came_from: dict[State, tuple[State, int, str] | None] = {start: None}
        queue = deque([start])
        around = neighbours(self.size)
        while queue:
            state = boxes, worker = queue.popleft()
            if boxes == self.goals:
                return _first_run(self.size, came_from, state)
            blocked = self.walls | boxes
            reach = None if worker is None else distances(self.size, blocked, [worker])
            for box in sorted(boxes):
                for direction, there in around[box].items():
                    side = around[box].get(OPPOSITE[direction])
                    if there in blocked or side is None or side in blocked or (reach is not None and side not in reach):
                        continue
                    after = (boxes - {box} | {there}, box)
                    if after not in came_from:
                        came_from[after] = (state, box, direction)
                        queue.append(after)
        return min(self.boxes - self.goals), []

    def _follow(self, rng: Random) -> list[str]:
        """With a local view: walk to the box and push it as proposed; cells out of sight count as free."""
        visible = window(self.size, self.worker, self.view_radius)
        walls = self.walls & (visible | self._border)
        boxes = sorted(self.boxes & visible)
        box = self._plan.box if self._plan.box is not None and self._plan.box not in visible - self.boxes else None
        if box is None and boxes:
            box = boxes[0]
        moves: list[str] = []
        worker, start = self.worker, box
        for direction in self._plan.moves if box is not None else ():
            assert box is not None
            there = neighbours(self.size)[box].get(direction)
            others = (self.boxes & visible) - {start}
            walk = self._walk(walls | others | {box}, worker, box, direction)
            if walk is None or there is None or there in walls | others:
                break
            moves += [*walk, direction]
            worker, box = box, there
        if not moves:
            free = [m for m in MOVES if move_worker(self.size, walls, self.worker, self.boxes & visible, m) is not None]
            return [rng.choice(free)] if free else []
        return moves

    def _naive(self, agent: str, rng: Random) -> list[str]:
        if self._is_local(agent):
            return list(self._plan.moves)  # the pushes themselves, without the walks
        box = min(self.boxes - self.goals, default=min(self.boxes))
        goal = min(self.goals - self.boxes, default=min(self.goals))
        stops = [box, goal] if agent == TOOL else [self.worker, box, goal]
        moves: list[str] = []
        for here, there in pairwise(stops):
            (row, column), (to_row, to_column) = divmod(here, self.size), divmod(there, self.size)
            vertical = ["D" if to_row > row else "U"] * abs(to_row - row)
            horizontal = ["R" if to_column > column else "L"] * abs(to_column - column)
            moves += vertical + horizontal if rng.random() < 0.5 else horizontal + vertical
        return moves

    def _annotate(self, agent: str, opening: Sequence[str], moves: Sequence[str]) -> list[str]:
        start = cell_words(self.size).index(opening[1]) if agent == TOOL else self.worker  # pushes start at the box
        return annotate_moves(self.size, start, moves)


State = tuple[frozenset[int], int | None]
"""Boxes, and the worker's cell, None where it is hidden."""


def _first_run(size: int, came_from: dict[State, tuple[State, int, str] | None], state: State) -> tuple[int, list[str]]:
    """The box pushed first on the way to ``state``, and its pushes until another box is pushed."""
    pushes: list[tuple[int, str]] = []
    while (step := came_from[state]) is not None:
        state, box, direction = step
        pushes.append((box, direction))
    pushes.reverse()
    first = box = pushes[0][0]
    run: list[str] = []
    for next_box, direction in pushes:
        if next_box != box:
            break
        run.append(direction)
        box = neighbours(size)[box][direction]
    return first, run
