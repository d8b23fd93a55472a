"""The compact notation of the grid worlds: a sequence of words, moves ``U D L R`` and cells ``row,column``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from .board import MOVES, neighbours


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
