"""Square grids: cells, moves, shortest paths, and symmetries.

A cell is ``row * size + column``.  Moves are ``U D L R``.

The compact notation of the grid worlds: a sequence of words, moves ``U D L R`` and cells ``row,column``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
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


@cache
def cell_words(size: int) -> tuple[str, ...]:
    """The word of each cell."""
    return tuple(f"{row},{column}" for row in range(size) for column in range(size))


@dataclass(frozen=True)
class MovePlan:
    """The content of a message: its moves, and the cell of the box where it names one (``box r,c``).

    ``words`` are the message's words up to its last move that counts.  A malformed message has no moves and no words.
    """

    moves: tuple[str, ...] = ()
    box: int | None = None
    words: tuple[str, ...] = field(default=(), compare=False)
    malformed: bool = False


MALFORMED = MovePlan(malformed=True)


def parse_plan(text: str, size: int, max_moves: int, *, may_name_box: bool = False) -> MovePlan:
    """Read the compact notation: ``[box CELL] (MOVE [CELL])*``, words separated by blanks.

    A cell after a move is the author's note of where the move leads; it is not checked and changes nothing.  Moves
    beyond ``max_moves`` are dropped.  Anything else makes the whole message malformed, and so does ``box`` where
    ``may_name_box`` is False.
    """
    index = _cell_index(size)
    words = text.split()
    valid_words: list[str] = []
    box: int | None = None
    if may_name_box and words[:1] == ["box"]:
        if len(words) < 2 or words[1] not in index:
            return MALFORMED
        valid_words, box, words = words[:2], index[words[1]], words[2:]
    moves: list[str] = []
    note_allowed = False
    for word in words:
        if word in MOVES:
            moves.append(word)
            note_allowed = True
        elif note_allowed and word in index:
            note_allowed = False
        else:
            return MALFORMED
        if len(moves) <= max_moves:
            valid_words.append(word)
    return MovePlan(tuple(moves[:max_moves]), box, tuple(valid_words))


@cache
def _cell_index(size: int) -> dict[str, int]:
    return {word: cell for cell, word in enumerate(cell_words(size))}


def annotate_moves(size: int, start: int, moves: Iterable[str]) -> list[str]:
    """Moves, each with the cell to which it leads: ``R 0,1 D 1,1``; ends where a move would leave the grid."""
    around, words, out, cell = neighbours(size), cell_words(size), [], start
    for move in moves:
        if move not in around[cell]:
            break
        cell = around[cell][move]
        out += [move, words[cell]]
    return out


def vocabulary(size: int) -> list[str]:
    """Every word that grids up to ``size`` use in observations and messages."""
    words = "last start ok hit malformed proposal none check goal at box walls near tool plan solo".split()
    return [*MOVES, *words, *cell_words(size)]
