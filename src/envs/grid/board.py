"""Square grids: cells, moves, shortest paths, and symmetries.

A cell is ``row * size + column``.  Moves are ``U D L R``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from functools import cache

from ..splits import content_digest

MOVES: dict[str, tuple[int, int]] = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
OPPOSITE = {"U": "D", "D": "U", "L": "R", "R": "L"}


@cache
def neighbours(size: int) -> tuple[dict[str, int], ...]:
    """For each cell, the cells that the four moves lead to; moves off the grid are absent."""
    return tuple(
        {
            move: (row + dr) * size + column + dc
            for move, (dr, dc) in MOVES.items()
            if 0 <= row + dr < size and 0 <= column + dc < size
        }
        for row in range(size)
        for column in range(size)
    )


@cache
def window(size: int, centre: int, radius: int) -> frozenset[int]:
    """The cells at most ``radius`` rows and columns away from ``centre``, itself included."""
    row, column = divmod(centre, size)
    return frozenset(
        r * size + c
        for r in range(max(0, row - radius), min(size, row + radius + 1))
        for c in range(max(0, column - radius), min(size, column + radius + 1))
    )


def draw_board(
    size: int, walls: Collection[int], worker: int, boxes: Collection[int], goals: Collection[int]
) -> tuple[str, ...]:
    """Rows of characters, in Sokoban's usual signs; see :meth:`TeamEnv.picture`."""
    signs = {(False, False): " .", (True, False): "$*", (False, True): "@+"}
    cells = ["#" if cell in walls else signs[cell in boxes, cell == worker][cell in goals] for cell in range(size**2)]
    return tuple("".join(cells[row * size : (row + 1) * size]) for row in range(size))


def shortest_path(size: int, blocked: Collection[int], start: int, goals: Collection[int]) -> list[str] | None:
    """Moves of a shortest path from ``start`` to the nearest of ``goals``; of equal ones the first in move order.

    None where no goal can be reached.
    """
    distance = distances(size, blocked, goals)
    if start not in distance:
        return None
    around = neighbours(size)
    path: list[str] = []
    cell = start
    while distance[cell]:
        move, cell = next(
            (move, there) for move, there in around[cell].items() if distance.get(there, -1) == distance[cell] - 1
        )
        path.append(move)
    return path


def distances(size: int, blocked: Collection[int], goals: Collection[int]) -> dict[int, int]:
    """Steps from each cell that can reach a goal to the nearest goal, over cells that are not ``blocked``."""
    around = neighbours(size)
    steps = dict.fromkeys(goals, 0)
    queue = deque(steps)
    while queue:
        cell = queue.popleft()
        for there in around[cell].values():
            if there not in steps and there not in blocked:
                steps[there] = steps[cell] + 1
                queue.append(there)
    return steps


@cache
def symmetries(size: int) -> tuple[tuple[int, ...], ...]:
    """The 8 symmetries of the square, each as the image of every cell."""
    last = size - 1
    maps = []
    for flip in (False, True):
        for turns in range(4):
            image = []
            for row in range(size):
                for column in range(size):
                    r, c = (row, last - column) if flip else (row, column)
                    for _ in range(turns):
                        r, c = c, last - r
                    image.append(r * size + c)
            maps.append(tuple(image))
    return tuple(maps)


def canonical_form(size: int, layers: Sequence[Collection[int]]) -> tuple[tuple[int, ...], ...]:
    """The least of a board's 8 images; two boards are equal up to symmetry exactly if their canonical forms are.

    ``layers`` are sets of cells (walls, boxes, ...); a symmetry maps all of them.
    """
    return min(tuple(tuple(sorted(map(image.__getitem__, layer))) for layer in layers) for image in symmetries(size))


def form_digest(size: int, form: tuple[tuple[int, ...], ...]) -> str:
    """A short stable name of a canonical form: 12 hexadecimal digits."""
    return content_digest(repr((size, form)))
