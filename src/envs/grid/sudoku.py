"""Sudoku: fill a grid so that each row, column and box has every digit once (PettingLLMs, arXiv 2510.11062).

Both agents see the whole grid, as in the paper: the tool agent proposes digits, the planner writes those that are
filled in.  A message is a list of cells with their digits, ``0,1=3 2,0=1``, or ``0,1=?`` to empty a cell.  It must not
name a cell twice, nor give a clue another digit: such a message fills nothing.  The cells that it names are emptied
first, then filled in its order; it ends at the first digit that is already in the row, column or box.  So the grid
always keeps the rules, and always has its clues.

The distance to the goal is the number of empty cells.  A grid with a wrong digit has none: only right digits are
progress.  Who is paid for it is in :mod:`.two_roles`.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from ...experience import Split, Task
from ..base import Skill
from ..splits import split_of
from . import prompts
from .board import MALFORMED, MovePlan
from .dense import fill_reward
from .sudoku_board import BOXES, Grid, candidates, only_solution, peers, puzzle_digest, sample_puzzle
from .two_roles import PLAN, SOLO, TOOL, ProposalCheck, TwoRoleWorld, make_task

EMPTY = "?"
EXAMPLE = "0,2=4 3,1=2"
CELLS = """Each cell is row,column=digit, rows and columns counted from 0 at the top left. A cell that your team has \
filled can be filled anew, or emptied, as in 3,1=?."""
FORM = f"{CELLS} {prompts.ending('cells', EXAMPLE, called=False)}"

PROGRAM = """It reads the grid as JSON from standard input: {{"size": {size}, "box": [{rows}, {columns}], "clues": \
[[...], ...], "grid": [[...], ...]}}, both row by row, 0 where a cell is empty; box is the rows and columns of a box. \
It has the standard library, {seconds:g} seconds, and no files and no network. It must print, as its last line, cells \
as row,column=digit, rows and columns counted from 0 at the top left, such as
Cells: {example}"""


class Sudoku(TwoRoleWorld):
    """A ``size`` x ``size`` grid (4, 6, 8 or 9) with ``min_blanks`` to ``max_blanks`` empty cells and one solution.

    The other settings are those of :class:`~.two_roles.TwoRoleWorld`.
    """

    name = "sudoku"
    answer_label = "cells"
    act_tool = ("fill", "Fill cells in, or empty them.")
    check_texts: ClassVar[Mapping[str, str]] = {
        "none": "nothing",
        "goal": "it fills the grid",
        "ok": "it keeps the rules, but cells are left empty",
        "hit": "a digit in it is already in the row, column or box",
        "malformed": "it could not be read, names a cell twice, or changes a clue",
    }
    last_texts: ClassVar[Mapping[str, str]] = {
        "start": "nothing yet",
        "ok": "all were filled in",
        "hit": "a digit was already in the row, column or box; those before it were filled in",
        "malformed": "they could not be read, named a cell twice, or changed a clue, so none was filled in",
    }

    def __init__(self, *, size: int = 4, min_blanks: int = 6, max_blanks: int = 8, **common: Any) -> None:
        if size not in BOXES:
            raise ValueError(f"env.size={size} has no boxes; sudoku knows {', '.join(map(str, BOXES))}")
        most = size**2 - (size - 1)  # with two digits on no clue, exchanging them gives a second solution
        if not 1 <= min_blanks <= max_blanks <= most:
            raise ValueError(
                f"env.min_blanks={min_blanks} and env.max_blanks={max_blanks} must be in [1, {most}] for size {size}, "
                "in this order"
            )
        super().__init__(size=size, **common)
        self.min_blanks, self.max_blanks = min_blanks, max_blanks
        self.clues: Grid = (0,) * size**2
        self.grid = self.solution = self.clues
        self._entries = {
            entry_word(size, cell, digit): (cell, digit) for cell in range(size**2) for digit in range(size + 1)
        }

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def _draw(self, split: Split, rng: Random) -> Task | None:
        clues = sample_puzzle(self.size, rng.randint(self.min_blanks, self.max_blanks), rng)
        if clues is None:
            return None
        solution = only_solution(self.size, clues)
        assert solution is not None
        digest = puzzle_digest(self.size, clues, solution)
        return make_task(self.name, digest, split_of(digest), clues=clues)

    def _start(self, task: Task) -> None:
        clues = task.data["clues"]
        solution = only_solution(self.size, clues)
        if solution is None:
            raise ValueError(f"task {task.task_id} of {self.name} does not have exactly one solution")
        self.clues = self.grid = clues
        self.solution = solution

    # ---- the grid -------------------------------------------------------------------------------------------------

    def _board(self, agent: str) -> list[str]:
        clues, filled, blank = ["clues"], ["filled"], ["blank"]
        for cell, digit in enumerate(self.grid):
            part = clues if self.clues[cell] else filled if digit else blank
            part.append(entry_word(self.size, cell, digit))
        return [*clues, *filled, *blank]

    def _drawing(self, agent: str) -> str:
        rows = "\n".join(" ".join(str(digit or ".") for digit in row) for row in _rows(self.size, self.grid))
        filled = [entry_word(self.size, cell, digit) for cell, digit in self._own()]
        return f"The grid (. is empty):\n{rows}\nOf these digits, your team filled in: {' '.join(filled) or 'none'}."

    def _own(self) -> list[tuple[int, int]]:
        """The cells that the team filled, with their digits."""
        return [(cell, digit) for cell, digit in enumerate(self.grid) if digit and not self.clues[cell]]

    def _input(self) -> str:
        rows, columns = BOXES[self.size]
        grids = {"clues": _rows(self.size, self.clues), "grid": _rows(self.size, self.grid)}
        return json.dumps({"size": self.size, "box": [rows, columns], **grids})

    def _rules(self, agent: str) -> str:
        rows, columns = BOXES[self.size]
        task = (
            f"Sudoku: the empty cells of a {self.size} by {self.size} grid are filled with the digits 1 to "
            f"{self.size}, so that every row, every column and every box of {rows} rows and {columns} columns has each "
            "digit once. The digits that are there at the start, the clues, cannot be changed. There is one solution."
        )
        if agent == SOLO:
            return f"{task} Give the digits of the empty cells."
        if agent == TOOL:
            return (
                f"{task} You are the tool agent of a team of two: you propose digits; your partner, the planner, "
                "decides."
            )
        return (
            f"{task} You are the planner of a team of two: your partner, the tool agent, proposes digits, and you give "
            "those that are filled in."
        )

    def _form(self, agent: str, program_seconds: float | None) -> str:
        called = self.tool_format is not None
        if program_seconds is None:
            return f"{CELLS} {prompts.ending(self.answer_label, EXAMPLE, called=True)}" if called else FORM
        rows, columns = BOXES[self.size]
        details = PROGRAM.format(size=self.size, rows=rows, columns=columns, seconds=program_seconds, example=EXAMPLE)
        return prompts.program("the digits", details, called=called)

    def _parse(self, text: str, agent: str) -> MovePlan:
        words = text.split()
        if len(words) > self.size**2 or not self._entries.keys() >= set(words):
            return MALFORMED
        entries = dict(map(self._entries.__getitem__, words))
        twice = len(entries) < len(words)
        if twice or any(self.clues[cell] not in (0, digit) for cell, digit in entries.items()):
            return MALFORMED
        return MovePlan(tuple(words), words=tuple(words))

    def _notation(self, agent: str) -> str:
        return f"row,column=digit of each cell, separated by blanks; {EMPTY} empties it"

    def _distance(self) -> int | None:
        right = all(digit in (0, right) for digit, right in zip(self.grid, self.solution, strict=True))
        return self.grid.count(0) if right else None

    def _solved(self) -> bool:
        return self.grid == self.solution

    def _make_moves(self, moves: Sequence[str]) -> bool:
        entries = [self._entries[move] for move in moves]
        grid, blocked = list(self.grid), False
        for cell, _ in entries:
            grid[cell] = self.clues[cell]
        for cell, digit in entries:
            if blocked := digit > 0 and any(grid[peer] == digit for peer in peers(self.size)[cell]):
                break
            grid[cell] = digit
        self.grid = tuple(grid)
        return blocked

    def _check_proposal(self, plan: MovePlan) -> ProposalCheck:
        copy = self.fork()
        blocked = copy._make_moves(plan.moves)
        missing = sum(digit != right for digit, right in zip(self.grid, self.solution, strict=True))
        left = copy._distance()
        progress = 0.0 if left is None else max(0.0, (missing - left) / missing)
        word = "goal" if copy._solved() else "hit" if blocked else "ok"
        return ProposalCheck(copy._solved(), blocked, progress, (word,))

    def _dense(self, plan: MovePlan, agent: str) -> float:
        return fill_reward(self.size, self.grid, [self._entries[move] for move in plan.moves], self.solution)

    def _pieces(self) -> Hashable:
        return (self.clues, self.grid)

    def picture(self) -> tuple[str, ...]:
        return tuple("".join(str(digit or " ") for digit in row) for row in _rows(self.size, self.grid))

    # ---- demonstrators --------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Experts write the digits that are not right yet, each where it is the only candidate; as planners, a proposal
        that fills the grid.

        A novice is naive (gives each empty cell a digit that its row lacks), hasty (stops after a few cells) or clumsy
        (each digit random with a probability drawn from .3 to .9).  A flawed demonstrator is naive, confused (takes 1
        for 2 and 3 for 4, and so on), as a planner trusting (repeats the proposal, whatever its check), or clumsier
        still (.5 to 1).
        """
        entries = self._expert(agent)
        kind = rng.random()
        if skill == "novice":
            if kind < 0.4:
                entries = self._naive(rng)
            elif kind < 0.6:
                entries = entries[: rng.randint(1, 3)]
            else:
                entries = self._slip(entries, rng.uniform(0.3, 0.9), rng)
        elif skill == "flawed":
            if kind < 0.25:
                entries = self._naive(rng)
            elif kind < 0.5:
                entries = [(cell, min((digit - 1 ^ 1) + 1, self.size)) for cell, digit in entries]
            elif kind < 0.75 and agent == PLAN:
                entries = self._proposed()
            else:
                entries = self._slip(entries, rng.uniform(0.5, 1.0), rng)
        return self._message(agent, " ".join(entry_word(self.size, cell, digit) for cell, digit in entries))

    def _proposed(self) -> list[tuple[int, int]]:
        return [self._entries[word] for word in self._plan.moves]

    def _expert(self, agent: str) -> list[tuple[int, int]]:
        if agent == PLAN and self._check == ("goal",):
            return self._proposed()
        grid = [digit if digit == right else 0 for digit, right in zip(self.grid, self.solution, strict=True)]
        entries = []
        while 0 in grid:
            choices = {cell: len(candidates(self.size, grid, cell)) for cell, digit in enumerate(grid) if not digit}
            cell = min(choices, key=choices.__getitem__)
            grid[cell] = self.solution[cell]
            entries.append((cell, grid[cell]))
        return entries

    def _naive(self, rng: Random) -> list[tuple[int, int]]:
        entries: list[tuple[int, int]] = []
        for start in range(0, self.size**2, self.size):
            row = self.grid[start : start + self.size]
            missing = [digit for digit in range(1, self.size + 1) if digit not in row]
            empty = [start + column for column, digit in enumerate(row) if not digit]
            entries += zip(empty, rng.sample(missing, len(missing)), strict=True)
        return entries

    def _slip(self, entries: Sequence[tuple[int, int]], share: float, rng: Random) -> list[tuple[int, int]]:
        """``entries``, each with a random digit with probability ``share``."""
        return [(cell, rng.randint(1, self.size) if rng.random() < share else digit) for cell, digit in entries]


def entry_word(size: int, cell: int, digit: int) -> str:
    """The word of a cell with its digit; of an empty one for 0."""
    row, column = divmod(cell, size)
    return f"{row},{column}={digit or EMPTY}"


def vocabulary(size: int) -> list[str]:
    """Every word of observations and messages on a grid of ``size``."""
    words = "clues filled blank last start ok hit malformed proposal none check goal tool plan solo".split()
    return [*words, *(entry_word(size, cell, digit) for cell in range(size**2) for digit in range(size + 1))]


def _rows(size: int, grid: Grid) -> list[Grid]:
    return [grid[start : start + size] for start in range(0, size**2, size)]
