"""Prompts of the grid worlds for models that do not know the notation: rules, a drawn board, and how to answer.

A message ends with a line ``Moves: ...``; the text above it is reasoning.  A tool agent that writes programs puts one
into a fenced block, and the program prints that line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..fences import last_program
from .board import cell_words, draw_board

_LINES = {label: re.compile(rf"[\s>*#`_]*{label}[\s*_]*:(.*)", re.IGNORECASE) for label in ("moves", "cells")}
"""The lines that count, by their label."""


@dataclass(frozen=True)
class View:
    """An agent's view of the board: the ``visible`` cells, and the pieces there.  ``at``: the worker's or walker's
    cell, None where it is hidden."""

    visible: frozenset[int]
    walls: frozenset[int]
    boxes: frozenset[int]
    goals: frozenset[int]
    at: int | None

    def rows(self, size: int) -> list[str]:
        """The board drawn; ``-`` is floor, ``?`` a cell out of sight."""
        signs = "".join(draw_board(size, self.walls, -1 if self.at is None else self.at, self.boxes, self.goals))
        cells = ["?" if cell not in self.visible else "-" if sign == " " else sign for cell, sign in enumerate(signs)]
        return ["".join(cells[row * size : (row + 1) * size]) for row in range(size)]

    def json(self, size: int) -> str:
        """The same for a program: cells as [row, column]."""
        pieces = {"walls": self.walls, "boxes": self.boxes, "goals": self.goals}
        lists = {name: [list(divmod(cell, size)) for cell in sorted(cells)] for name, cells in pieces.items()}
        at = None if self.at is None else list(divmod(self.at, size))
        hidden = [list(divmod(cell, size)) for cell in range(size**2) if cell not in self.visible]
        return json.dumps({"size": size, **lists, "at": at, "out_of_sight": hidden})


LEGEND = "# wall, - floor, @ you, $ box, . goal, * box on a goal, + you on a goal, ? out of your sight"

DIRECTIONS = "U, D, L and R are up, down, left and right."

PROGRAM = """It reads what you see as JSON from standard input: {{"size": {size}, "walls": [[row, column], ...], \
"boxes": [...], "goals": [...], "at": [row, column] or null, "out_of_sight": [...]}}. It has the standard library, \
{seconds:g} seconds, and no files and no network. It must print, as its last line, the moves (U, D, L and R are \
up, down, left and right), such as
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


def ending(label: str, example: str, *, called: bool) -> str:
    """How to answer; ``called``: by a call, whose form the prompt tells elsewhere."""
    if called:
        return f"Give {label} such as\n{example}"
    return f"Think first if you like, and end with one line of {label}, such as\n{label.capitalize()}: {example}"


def program(aim: str, details: str, *, called: bool) -> str:
    """How to answer with a program that finds ``aim``."""
    if called:
        return f"Write one Python program that finds {aim}.\n{details}"
    return f"Write one Python program in a fenced block that finds {aim}:\n```python\n...\n```\n{details}"


def board(size: int, view: View) -> str:
    """The drawn board with its legend."""
    rows = "\n".join(view.rows(size))
    title = f"The board, {size} by {size}, rows and columns counted from 0 at the top left ({LEGEND}):"
    position = [] if view.at is None else [f"You are in row {view.at // size}, column {view.at % size}."]
    return "\n".join([title, rows, *position])


def proposal(words: str, check: Sequence[str], fault: str, checks: Mapping[str, str] = CHECKS) -> str:
    """The tool agent's proposal, as the planner sees it; ``fault``: how its program failed, if it did."""
    if fault:
        return f"The tool agent's program failed: {fault}. There is no proposal."
    if not words:
        return "The tool agent proposes nothing that could be read."
    end = f" and ends at row,column {check[1]}" if len(check) > 1 else ""
    return f"The tool agent proposes: {words}\nThe proposal was tried out: {checks[check[0]]}{end}."


def answer(text: str, label: str = "moves") -> str | None:
    """The text after ``Moves:`` (``label``) in the last such line, as words separated by blanks; None without one."""
    for line in reversed(text.splitlines()):
        if match := _LINES[label].fullmatch(line):
            moves = match[1].lstrip(" \t*_").rstrip(" \t*_`.")
            return re.sub(r"[\[\]()\"'`]|,(?!\d)|(?<!\d),", " ", moves)
    return None


def fenced_program(text: str) -> str | None:
    """The program in the last closed fenced block; None where there is none."""
    program = last_program(text)
    return None if program is None else f"{program}\n"


def example(size: int, box: bool) -> str:
    """Moves as an agent should write them."""
    return f"box {cell_words(size)[size + 1]} R R D" if box else "R R D"
