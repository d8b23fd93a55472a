"""Exact Sokoban distances: the fewest moves from a position until every box stands on a goal."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from functools import cached_property
from heapq import heappop, heappush
from math import comb, inf
from threading import Lock

from .board import MOVES, OPPOSITE, neighbours

Position = tuple[int, frozenset[int]]
"""The worker's cell and the boxes' cells."""

TABLE_LIMIT = 50_000
"""Boards with at most so many positions get a table of all distances; larger ones are searched forward."""


class SearchLimitError(RuntimeError):
    """A search stopped before it found a solution or proved that there is none."""


def move_worker(size: int, walls: Collection[int], worker: int, boxes: frozenset[int], move: str) -> Position | None:
    """The position after a move, pushing the box that stands in its way; None where it is blocked."""
    around = neighbours(size)
    there = around[worker].get(move)
    if there is None or there in walls:
        return None
    if there not in boxes:
        return there, boxes
    beyond = around[there].get(move)
    if beyond is None or beyond in walls or beyond in boxes:
        return None
    return there, boxes - {there} | {beyond}


def push_distances(size: int, walls: Collection[int], goals: Collection[int]) -> dict[int, int]:
    """The fewest pushes of a lone box from each cell to the nearest goal; cells without a way to one are absent."""
    around = neighbours(size)
    pushes = dict.fromkeys(goals, 0)
    queue = deque(pushes)
    while queue:
        box = queue.popleft()
        for back in MOVES:  # the box came from there; the worker stood one cell behind it
            before = around[box].get(back)
            side = None if before is None else around[before].get(back)
            if before is None or side is None or before in pushes or before in walls or side in walls:
                continue
            pushes[before] = pushes[box] + 1
            queue.append(before)
    return pushes


class Solver:
    """Distances on one board: ``walls`` and ``goals`` are cells of a ``size`` x ``size`` grid.

    Small boards are solved backward from every solved position over pulls, as far as the questions need; on others each
    question is an A* search over moves, with each box's own fewest pushes to a goal as the admissible estimate, of at
    most ``expansions`` positions.
    """

    def __init__(self, size: int, walls: Collection[int], goals: Collection[int], expansions: int = 200_000) -> None:
        self.size, self.walls, self.goals = size, frozenset(walls), frozenset(goals)
        self.expansions = expansions
        self._free = [cell for cell in range(size**2) if cell not in self.walls]
        self._distances: dict[Position, int | None] = {}
        self._frontier: deque[Position] = deque()
        self._lock = Lock()  # boards are shared among the games of a process, which may be in several threads
        self._small = comb(len(self._free), len(self.goals)) * len(self._free) <= TABLE_LIMIT
        if self._small and self.goals <= frozenset(self._free):
            self._frontier.extend((worker, self.goals) for worker in self._free if worker not in self.goals)
            self._distances.update(dict.fromkeys(self._frontier, 0))

    @cached_property
    def _pushes(self) -> dict[int, int]:
        return push_distances(self.size, self.walls, self.goals)

    def distance(self, worker: int, boxes: frozenset[int]) -> int | None:
        """The fewest moves to the solution; None where there is none.

        Raises :class:`SearchLimitError` where the board is too large to tell.
        """
        position = (worker, boxes)
        if position not in self._distances:
            self._distances[position] = self._from_table(position) if self._small else self._search(position)
        return self._distances[position]

    def solution(self, worker: int, boxes: frozenset[int]) -> list[str] | None:
        """A shortest solution, of equal ones the first in move order; None where there is none.

        Raises :class:`SearchLimitError` where the board is too large to tell.
        """
        left = self.distance(worker, boxes)
        if left is None:
            return None
        moves: list[str] = []
        for most in range(left - 1, -1, -1):
            move, (worker, boxes) = next(
                (move, after)
                for move in MOVES
                if (after := move_worker(self.size, self.walls, worker, boxes, move)) and self._within(after, most)
            )
            moves.append(move)
        return moves

    def _within(self, position: Position, most: int) -> bool:
        """Whether the solution is at most ``most`` moves away."""
        if position not in self._distances and not self._small:
            return self._search(position, most) is not None
        distance = self.distance(*position)
        return distance is not None and distance <= most

    def _from_table(self, position: Position) -> int | None:
        with self._lock:
            while self._frontier and position not in self._distances:
                worker, boxes = at = self._frontier.popleft()
                steps = self._distances[at]
                assert steps is not None
                for before in self._before(worker, boxes):
                    if before not in self._distances:
                        self._distances[before] = steps + 1
                        self._frontier.append(before)
        return self._distances.get(position)

    def _before(self, worker: int, boxes: frozenset[int]) -> list[Position]:
        """The positions from which one move leads to (worker, boxes)."""
        positions: list[Position] = []
        around = neighbours(self.size)[worker]
        for move in MOVES:
            back, there = around.get(OPPOSITE[move]), around.get(move)
            if back is None or back in self.walls or back in boxes:
                continue
            positions.append((back, boxes))
            if there is not None and there in boxes:  # the move may have pushed this box from the worker's present cell
                positions.append((back, boxes - {there} | {worker}))
        return positions

    def _search(self, start: Position, most: float = inf) -> int | None:
        """The fewest moves from ``start``, or None where the solution is not within ``most`` moves."""
        if self._dead(start[1]):
            return None
        queue: list[tuple[int, int, int, Position]] = [(self._estimate(start[1]), 0, 0, start)]
        best = {start: 0}
        tie = expanded = 0
        while queue:
            _, negative_steps, _, (worker, boxes) = heappop(queue)
            steps = -negative_steps
            if boxes == self.goals:
                return steps
            if steps > best[worker, boxes]:
                continue
            expanded += 1
            if expanded > self.expansions:
                raise SearchLimitError(f"no answer within {self.expansions} positions on a {self.size}-wide board")
            for move in MOVES:
                after = move_worker(self.size, self.walls, worker, boxes, move)
                if after is None or steps + 1 >= best.get(after, inf) or self._dead(after[1]):
                    continue
                total = steps + 1 + self._estimate(after[1])
                if total <= most:
                    best[after] = steps + 1
                    tie += 1
                    heappush(queue, (total, -(steps + 1), tie, after))
        return None

    def _dead(self, boxes: frozenset[int]) -> bool:
        """Whether some box stands where no pushes lead to a goal, not even if it were alone."""
        return any(box not in self._pushes for box in boxes)

    def _estimate(self, boxes: frozenset[int]) -> int:
        return sum(self._pushes[box] for box in boxes)
