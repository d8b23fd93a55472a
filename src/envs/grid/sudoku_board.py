"""Sudoku grids: units, an exact solver, puzzles with one solution, and a digest that no symmetry changes.

A grid is a tuple of size² digits, row by row, 0 where a cell is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from random import Random

from ..splits import content_digest

Grid = tuple[int, ...]

BOXES = {4: (2, 2), 6: (2, 3), 8: (2, 4), 9: (3, 3)}
"""Rows and columns of a box, by the grid's size."""
ROUNDS = 4
"""Of the refinement in :func:`puzzle_digest`."""


@cache
def units(size: int) -> tuple[tuple[int, int, int], ...]:
    """Row, column and box of every cell, each counted from 0."""
    height, width = BOXES[size]
    cells = [divmod(cell, size) for cell in range(size**2)]
    return tuple((row, column, row // height * height + column // width) for row, column in cells)


@cache
def peers(size: int) -> tuple[tuple[int, ...], ...]:
    """The other cells of each cell's row, column and box."""
    own = units(size)
    return tuple(
        tuple(b for b in range(size**2) if b != a and any(x == y for x, y in zip(own[a], own[b], strict=True)))
        for a in range(size**2)
    )


def candidates(size: int, grid: Sequence[int], cell: int) -> list[int]:
    """The digits that no peer of ``cell`` has."""
    taken = {grid[peer] for peer in peers(size)[cell]}
    return [digit for digit in range(1, size + 1) if digit not in taken]


def keeps_the_rules(size: int, grid: Sequence[int]) -> bool:
    """Whether no digit is twice in a row, column or box."""
    return all(not digit or all(grid[peer] != digit for peer in peers(size)[c]) for c, digit in enumerate(grid))


def solutions(size: int, grid: Sequence[int], rng: Random | None = None) -> Iterator[Grid]:
    """Every solution of ``grid``, each once; in random order with ``rng``.

    Depth first, the cell with the fewest candidates next: exact.
    """
    if not keeps_the_rules(size, grid):
        return
    cells, own, every = list(grid), units(size), (2 << size) - 2
    taken = [[0] * size for _ in range(3)]  # bits of the digits in each row, column and box
    for unit, digit in zip(own, grid, strict=True):
        for kind, index in enumerate(unit):
            taken[kind][index] |= (1 << digit) & every
    rows, columns, boxes = taken

    def search(blanks: list[int]) -> Iterator[Grid]:
        best, free, least = -1, 0, size + 1
        for cell in blanks:
            row, column, box = own[cell]
            bits = every & ~(rows[row] | columns[column] | boxes[box])
            if (count := bits.bit_count()) < least:
                best, free, least = cell, bits, count
                if count <= 1:
                    break
        if best < 0:
            yield tuple(cells)
            return
        digits = [digit for digit in range(1, size + 1) if free >> digit & 1]
        if rng is not None:
            rng.shuffle(digits)
        others, (row, column, box) = [cell for cell in blanks if cell != best], own[best]
        for digit in digits:
            cells[best], bit = digit, 1 << digit
            rows[row], columns[column], boxes[box] = rows[row] | bit, columns[column] | bit, boxes[box] | bit
            yield from search(others)
            rows[row], columns[column], boxes[box] = rows[row] & ~bit, columns[column] & ~bit, boxes[box] & ~bit

    yield from search([cell for cell, digit in enumerate(grid) if not digit])


def only_solution(size: int, grid: Sequence[int]) -> Grid | None:
    """The solution of ``grid`` where there is exactly one; else None."""
    found = solutions(size, grid)
    first = next(found, None)
    return first if next(found, None) is None else None


def sample_puzzle(size: int, blanks: int, rng: Random) -> Grid | None:
    """Clues with exactly one solution, which leave ``blanks`` cells empty; None where this draw has none.

    Cells of a random solution are emptied in random order, each if the solution stays the only one.
    """
    grid = list(next(solutions(size, [0] * size**2, rng)))
    for cell in rng.sample(range(size**2), size**2):
        if not blanks:
            break
        digit, grid[cell] = grid[cell], 0
        if only_solution(size, grid) is None:
            grid[cell] = digit
        else:
            blanks -= 1
    return None if blanks else tuple(grid)


def puzzle_digest(size: int, clues: Grid, solution: Grid) -> str:
    """A name that puzzles equal up to symmetry share: 12 hexadecimal digits.

    Invariant under every relabelling of the digits, every permutation of rows within a band and of the bands, of
    columns within a stack and of the stacks, and, where boxes are square, under transposition; so under rotations and
    reflections, too.  Colour refinement of the cells: at first whether a cell is a clue; then, in each round, its
    colour with the colours in its row, its column (their order does not matter where boxes are square), its box, and
    of the cells with its digit in the solution.  Puzzles that are not equal up to symmetry may share a digest, but
    rarely do.
    """
    own, square = units(size), BOXES[size][0] == BOXES[size][1]
    colours = ["clue" if digit else "blank" for digit in clues]
    for _ in range(ROUNDS):
        rows, columns, boxes = (_signatures((unit[kind] for unit in own), colours) for kind in range(3))
        digits = _signatures(solution, colours)
        refined = []
        for cell, (row, column, box) in enumerate(own):
            lines = [rows[row], columns[column]]
            parts = [colours[cell], *(sorted(lines) if square else lines), boxes[box], digits[solution[cell]]]
            refined.append(content_digest(" ".join(parts)))
        colours = refined
    return content_digest(f"{size} {' '.join(sorted(colours))}")


def _signatures(groups: Iterable[int], colours: Sequence[str]) -> dict[int, str]:
    """The colours of each group of cells, in an order of their own."""
    members: dict[int, list[str]] = {}
    for group, colour in zip(groups, colours, strict=True):
        members.setdefault(group, []).append(colour)
    return {group: content_digest(" ".join(sorted(each))) for group, each in members.items()}
