"""The grid worlds told in full, for models that know no notation of ours: rules, a drawn board, and how to answer.

Whoever is asked ends the message with a line ``Moves: ...``; whatever stands above it is thinking.  A tool agent that
writes programs puts one into a fenced block, and the program prints that line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..fences import last_program
from .board import cell_words, drawn

_MOVES = re.compile(r"[\s>*#`_]*moves[\s*_]*:(.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Sight:
    """What an agent sees: the cells in sight, and of the pieces what lies there.  ``at``: None where it is not told."""

    seen: frozenset[int]
    walls: frozenset[int]
    boxes: frozenset[int]
    goals: frozenset[int]
    at: int | None

    def rows(self, size: int) -> list[str]:
        """The board drawn; ``-`` is floor, ``?`` a cell out of sight."""
        signs = "".join(drawn(size, self.walls, -1 if self.at is None else self.at, self.boxes, self.goals))
        shown = ["?" if cell not in self.seen else "-" if sign == " " else sign for cell, sign in enumerate(signs)]
        return ["".join(shown[row * size : (row + 1) * size]) for row in range(size)]

    def json(self, size: int) -> str:
        """The same for a program: cells as [row, column]."""
        pieces = {"walls": self.walls, "boxes": self.boxes, "goals": self.goals}
        cells = {name: [list(divmod(cell, size)) for cell in sorted(found)] for name, found in pieces.items()}
        at = None if self.at is None else list(divmod(self.at, size))
        hidden = [list(divmod(cell, size)) for cell in range(size**2) if cell not in self.seen]
        return json.dumps({"size": size, **cells, "at": at, "out_of_sight": hidden})


LEGEND = "# wall, - floor, @ you, $ box, . goal, * box on a goal, + you on a goal, ? out of your sight"

MOVES_LINE = (
    "U, D, L and R are up, down, left and right. Think first if you like, and end with one line of moves, such as\n"
    "Moves: {example}"
)

PROGRAM = """Write one Python program in a fenced block that finds them:
```python
...
```
It reads what you see as JSON from standard input: {{"size": {size}, "walls": [[row, column], ...], "boxes": [...], \
"goals": [...], "at": [row, column] or null, "out_of_sight": [...]}}. It has the standard library, {seconds:g} \
seconds, and no files and no network. It must print, as its last line, the moves (U, D, L and R are up, down, left and \
right), such as
Moves: {example}"""

CHECKS = {
    "none": "nothing",
    "goal": "it reaches the goal",
    "ok": "nothing blocks it, but it does not reach the goal",
    "hit": "it runs into something",
    "malformed": "it could not be read",
}

LAST = {
    "start": "nothing yet",
    "ok": "all were made",
    "hit": "they ran into something and ended there",
    "malformed": "they could not be read, so none was made",
}


def board(size: int, sight: Sight) -> str:
    """The drawn board with its legend."""
    rows = "\n".join(sight.rows(size))
    title = f"The board, {size} by {size}, rows and columns counted from 0 at the top left ({LEGEND}):"
    where = [] if sight.at is None else [f"You are in row {sight.at // size}, column {sight.at % size}."]
    return "\n".join([title, rows, *where])


def proposal(words: str, check: Sequence[str], fault: str) -> str:
    """What the planner hears of the tool agent's message; ``fault``: how its program failed, if it did."""
    if fault:
        return f"The tool agent's program failed: {fault}. There is no proposal."
    if not words:
        return "The tool agent proposes nothing that could be read."
    where = f" and ends at row,column {check[1]}" if len(check) > 1 else ""
    return f"The tool agent proposes: {words}\nThe proposal was tried out: {CHECKS[check[0]]}{where}."


def answer(text: str) -> str | None:
    """What follows ``Moves:`` in the last such line, as words apart by blanks; None where there is no such line."""
    for line in reversed(text.splitlines()):
        if found := _MOVES.fullmatch(line):
            moves = found[1].lstrip(" \t*_").rstrip(" \t*_`.")
            return re.sub(r"[\[\]()\"'`]|,(?!\d)|(?<!\d),", " ", moves)
    return None


def fenced(text: str) -> str | None:
    """The program in the last closed fenced block; None where there is none."""
    program = last_program(text)
    return None if program is None else f"{program}\n"


def example(size: int, box: bool) -> str:
    """Moves as they are to be written."""
    return f"box {cell_words(size)[size + 1]} R R D" if box else "R R D"
