"""Exact Sokoban distances: the fewest moves from a position until every box stands on a goal."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from heapq import heappop, heappush
from math import comb

from .grid import OPPOSITE, distances, neighbours

Position = tuple[int, frozenset[int]]
"""The worker's cell and the boxes' cells."""

TABLE_LIMIT = 50_000
"""Boards with at most so many positions get a table of all distances; larger ones are searched forward."""


class SearchLimitError(RuntimeError):
    """A search was given up before it found a solution or proved that there is none."""


class Solver:
    """Distances on one board: ``walls`` and ``goals`` are cells of a ``size`` x ``size`` grid.

    Small boards are solved at once, backward from every solved position over pulls; on others each question is an A*
    search over moves, with the boxes' own shortest ways to a goal as the admissible estimate, of at most
    ``expansions`` positions.
    """

    def __init__(self, size: int, walls: Collection[int], goals: Collection[int], expansions: int = 200_000) -> None:
        self.size, self.walls, self.goals = size, frozenset(walls), frozenset(goals)
        self.expansions = expansions
        self._free = [cell for cell in range(size**2) if cell not in self.walls]
        self._around = neighbours(size)
        self._box_distance = distances(size, self.walls, self.goals)
        self._known: dict[Position, int | None] = {}
        self._complete = comb(len(self._free), len(self.goals)) * len(self._free) <= TABLE_LIMIT
        if self._complete:
            self._fill_table()

    def distance(self, worker: int, boxes: frozenset[int]) -> int | None:
        """The fewest moves to the solution; None where there is none.

        Raises :class:`SearchLimitError` where the board is too large to tell.
        """
        position = (worker, boxes)
        if position not in self._known:
            self._known[position] = None if self._complete else self._search(position)
        return self._known[position]

    def solution(self, worker: int, boxes: frozenset[int]) -> list[str] | None:
        """A shortest solution, of equal ones the first in move order; None where there is none."""
        left = self.distance(worker, boxes)
        if left is None:
            return None
        moves: list[str] = []
        while left:
            for move, there in self._around[worker].items():
                after = self.after(worker, boxes, move, there)
                if after is not None and self.distance(*after) == left - 1:
                    moves.append(move)
                    (worker, boxes), left = after, left - 1
                    break
        return moves

    def after(self, worker: int, boxes: frozenset[int], move: str, there: int) -> Position | None:
        """The position after a move to ``there``, pushing what stands there; None where it is blocked."""
        if there in self.walls:
            return None
        if there not in boxes:
            return there, boxes
        beyond = self._around[there].get(move)
        if beyond is None or beyond in self.walls or beyond in boxes:
            return None
        return there, boxes - {there} | {beyond}

    def _fill_table(self) -> None:
        frontier: deque[Position] = deque()
        if self.goals <= frozenset(self._free):
            frontier.extend((worker, self.goals) for worker in self._free if worker not in self.goals)
        self._known.update(dict.fromkeys(frontier, 0))
        while frontier:
            worker, boxes = position = frontier.popleft()
            steps = self._known[position]
            assert steps is not None
            for before in self._before(worker, boxes):
                if before not in self._known:
                    self._known[before] = steps + 1
                    frontier.append(before)

    def _before(self, worker: int, boxes: frozenset[int]) -> list[Position]:
        """The positions from which one move leads to (worker, boxes)."""
        found: list[Position] = []
        for move, there in self._around[worker].items():
            back = self._around[worker].get(OPPOSITE[move])
            if back is None or back in self.walls or back in boxes:
                continue
            found.append((back, boxes))
            if there in boxes:  # the move may have pushed this box here from the worker's present cell
                found.append((back, boxes - {there} | {worker}))
        return found

    def _search(self, start: Position) -> int | None:
        if any(box not in self._box_distance for box in start[1]):
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
            for move, there in self._around[worker].items():
                after = self.after(worker, boxes, move, there)
                if after is None or steps + 1 >= best.get(after, steps + 2):
                    continue
                if any(box not in self._box_distance for box in after[1]):
                    continue
                best[after] = steps + 1
                tie += 1
                heappush(queue, (steps + 1 + self._estimate(after[1]), -(steps + 1), tie, after))
        return None

    def _estimate(self, boxes: frozenset[int]) -> int:
        return sum(self._box_distance[box] for box in boxes)
