"""Square grids: cells, moves, the compact notation, shortest paths, symmetries and splits by content.

A cell is ``row * size + column``.  The notation is a sequence of words: moves ``U D L R`` and cells ``row,column``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b

from ...experience import Split

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
def cell_words(size: int) -> tuple[str, ...]:
    """The word of each cell."""
    return tuple(f"{row},{column}" for row in range(size) for column in range(size))


@cache
def window(size: int, centre: int, radius: int) -> frozenset[int]:
    """The cells at most ``radius`` rows and columns away from ``centre``, itself included."""
    row, column = divmod(centre, size)
    return frozenset(
        r * size + c
        for r in range(max(0, row - radius), min(size, row + radius + 1))
        for c in range(max(0, column - radius), min(size, column + radius + 1))
    )


def drawn(
    size: int, walls: Collection[int], worker: int, boxes: Collection[int], goals: Collection[int]
) -> tuple[str, ...]:
    """Rows of characters, in Sokoban's usual signs; see :meth:`TeamEnv.picture`."""
    signs = {(False, False): " .", (True, False): "$*", (False, True): "@+"}
    cells = ["#" if cell in walls else signs[cell in boxes, cell == worker][cell in goals] for cell in range(size**2)]
    return tuple("".join(cells[row * size : (row + 1) * size]) for row in range(size))


@dataclass(frozen=True)
class Plan:
    """A parsed message: its moves, the cell it starts from where it names one (``box r,c``), and whether it parsed.

    ``words`` are the message's words up to its last move that counts.  A malformed message has no moves and no words.
    """

    moves: tuple[str, ...] = ()
    box: int | None = None
    words: tuple[str, ...] = field(default=(), compare=False)
    malformed: bool = False


def parse_plan(text: str, size: int, max_moves: int, *, may_name_box: bool = False) -> Plan:
    """Read the compact notation: ``[box CELL] (MOVE [CELL])*``, words apart by blanks.

    A cell after a move is thinking aloud; it is not checked and changes nothing.  Moves beyond ``max_moves`` are
    dropped.  Anything else makes the whole message malformed, and so does ``box`` where ``may_name_box`` is False.
    """
    index = _cell_index(size)
    words = text.split()
    kept: list[str] = []
    box: int | None = None
    if may_name_box and words[:1] == ["box"]:
        if len(words) < 2 or words[1] not in index:
            return Plan(malformed=True)
        kept, box, words = words[:2], index[words[1]], words[2:]
    moves: list[str] = []
    may_annotate = False
    for word in words:
        if word in MOVES:
            moves.append(word)
            may_annotate = True
        elif may_annotate and word in index:
            may_annotate = False
        else:
            return Plan(malformed=True)
        if len(moves) <= max_moves:
            kept.append(word)
    return Plan(tuple(moves[:max_moves]), box, tuple(kept))


@cache
def _cell_index(size: int) -> dict[str, int]:
    return {word: cell for cell, word in enumerate(cell_words(size))}


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
    found = dict.fromkeys(goals, 0)
    queue = deque(found)
    while queue:
        cell = queue.popleft()
        for there in around[cell].values():
            if there not in found and there not in blocked:
                found[there] = found[cell] + 1
                queue.append(there)
    return found


def trace(size: int, start: int, moves: Iterable[str]) -> list[str]:
    """Moves and the cells they lead to, thought aloud: ``R 0,1 D 1,1``; ends where a move would leave the grid."""
    around, words, out, cell = neighbours(size), cell_words(size), [], start
    for move in moves:
        if move not in around[cell]:
            break
        cell = around[cell][move]
        out += [move, words[cell]]
    return out


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


def canonical(size: int, layers: Sequence[Collection[int]]) -> tuple[tuple[int, ...], ...]:
    """The least of a board's 8 images; two boards are equal up to symmetry exactly if their canonical forms are.

    ``layers`` are sets of cells (walls, boxes, ...), each carried along by the symmetry.
    """
    return min(tuple(tuple(sorted(image[cell] for cell in layer)) for layer in layers) for image in symmetries(size))


def digest(size: int, form: tuple[tuple[int, ...], ...]) -> str:
    """A short stable name of a canonical form: 12 hexadecimal digits."""
    return blake2b(repr((size, form)).encode(), digest_size=6).hexdigest()


def split_of(form_digest: str) -> Split:
    """The split a board belongs to, decided by its content alone: 80 % train, 10 % validation, 10 % test."""
    bucket = int(form_digest, 16) % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"
