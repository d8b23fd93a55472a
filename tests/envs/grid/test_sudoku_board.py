"""Sudoku grids: the solver against brute force, puzzles with one solution, the digest under every symmetry."""

from collections.abc import Sequence
from functools import cache
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.grid.sudoku_board import (
    BOXES,
    Grid,
    keeps_the_rules,
    only_solution,
    puzzle_digest,
    sample_puzzle,
    solutions,
    units,
)


@cache
def every_grid() -> tuple[Grid, ...]:
    """All full 4x4 grids, by trying every combination of rows in a band, and of two bands."""
    rows = list(permutations(range(1, 5)))
    bands = [a + b for a, b in product(rows, rows) if len({*a[:2], *b[:2]}) == len({*a[2:], *b[2:]}) == 4]
    full = [top + bottom for top, bottom in product(bands, bands)]
    return tuple(grid for grid in full if all(len(set(grid[column::4])) == 4 for column in range(4)))


def agreeing(clues: Sequence[int]) -> set[Grid]:
    """The solutions of ``clues``, by brute force."""
    return {grid for grid in every_grid() if all(a in (0, b) for a, b in zip(clues, grid, strict=True))}


def test_units_by_hand() -> None:
    assert len(every_grid()) == 288
    assert [box for _, _, box in units(4)] == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]
    assert [box for _, _, box in units(6)][:18] == [0, 0, 0, 1, 1, 1] * 2 + [2, 2, 2, 3, 3, 3]
    for size in BOXES:
        for kind in range(3):
            members = [unit[kind] for unit in units(size)]
            assert all(members.count(group) == size for group in range(size))


@given(st.integers(0, 287), st.sets(st.integers(0, 15)), st.integers(0, 15), st.integers(0, 4))
def test_the_solver_finds_every_solution_once(which: int, blanks: set[int], cell: int, digit: int) -> None:
    """Of grids with parts taken away, and of the same with one digit changed, which mostly have none."""
    clues = [0 if c in blanks else d for c, d in enumerate(every_grid()[which])]
    for grid in (clues, [*clues[:cell], digit, *clues[cell + 1 :]]):
        found, expected = list(solutions(4, grid)), agreeing(grid)
        assert set(found) == expected and len(found) == len(expected)
        assert set(solutions(4, grid, Random(0))) == expected
        assert only_solution(4, grid) == (next(iter(expected)) if len(expected) == 1 else None)
        assert keeps_the_rules(4, grid) or not expected


@given(st.integers(1, 11), st.integers(0, 10**6))
def test_puzzles_have_one_solution_by_brute_force(blanks: int, seed: int) -> None:
    clues = sample_puzzle(4, blanks, Random(seed))
    if clues is not None:
        assert clues.count(0) == blanks and len(agreeing(clues)) == 1


@pytest.mark.parametrize(("size", "blanks"), [(6, 18), (8, 30), (9, 45)])
def test_larger_puzzles(size: int, blanks: int) -> None:
    rng = Random(0)
    clues = next(found for found in iter(lambda: sample_puzzle(size, blanks, rng), 0) if found is not None)
    (solution,) = solutions(size, clues)
    assert clues.count(0) == blanks and keeps_the_rules(size, solution) and 0 not in solution


# ---- symmetries -----------------------------------------------------------------------------------------------------


def lines(size: int, height: int, rng: Random) -> list[int]:
    """A permutation of rows within bands of ``height``, and of the bands."""
    bands = [rng.sample(range(first, first + height), height) for first in range(0, size, height)]
    return [row for band in rng.sample(bands, len(bands)) for row in band]


def image(size: int, grid: Grid, seed: int) -> Grid:
    """``grid`` under a random symmetry."""
    rng = Random(seed)
    height, width = BOXES[size]
    rows, columns = lines(size, height, rng), lines(size, width, rng)
    digits = [0, *rng.sample(range(1, size + 1), size)]
    turned = [grid[row * size + column] for row in rows for column in columns]
    if height == width and rng.random() < 0.5:
        turned = [turned[column * size + row] for row in range(size) for column in range(size)]
    return tuple(digits[digit] for digit in turned)


@pytest.mark.parametrize(("size", "blanks"), [(4, 7), (6, 16), (8, 24), (9, 40)])
def test_no_symmetry_changes_the_digest(size: int, blanks: int) -> None:
    rng = Random(1)
    clues = next(found for found in iter(lambda: sample_puzzle(size, blanks, rng), 0) if found is not None)
    solution = only_solution(size, clues)
    assert solution is not None
    rotated = tuple(clues[(size - 1 - r) * size + (size - 1 - c)] for r in range(size) for c in range(size))
    mirrored = tuple(clues[r * size + (size - 1 - c)] for r in range(size) for c in range(size))
    images = [rotated, mirrored, *(image(size, clues, seed) for seed in range(12))]
    assert len(set(images)) > 5
    digests = set()
    for each in (clues, *images):
        solved = only_solution(size, each)
        assert solved is not None
        digests.add(puzzle_digest(size, each, solved))
    assert len(digests) == 1


def canonical(clues: Grid) -> Grid:
    """The least of all images of a 4x4 puzzle, its digits named in the order in which they come: by brute force."""
    flips = [[a ^ swap for a in band] for swap in (0, 1) for band in ([0, 1], [2, 3])]
    orders = [[*x, *y] for a, b in ((0, 1), (1, 0)) for x in (flips[a], flips[a + 2]) for y in (flips[b], flips[b + 2])]
    least: Grid | None = None
    for rows, columns in product(orders, orders):
        for turned in (False, True):
            names: dict[int, int] = {0: 0}
            cells = [clues[c * 4 + r] if turned else clues[r * 4 + c] for r in rows for c in columns]
            named = tuple(names.setdefault(digit, len(names)) for digit in cells)
            least = named if least is None else min(least, named)
    assert least is not None
    return least


def test_the_digest_tells_puzzles_apart() -> None:
    """Against the exact canonical form: equal forms have equal digests, and here others different ones."""
    rng, pairs = Random(3), set()
    for _ in range(250):
        clues = sample_puzzle(4, 7, rng)
        assert clues is not None
        solution = only_solution(4, clues)
        assert solution is not None
        pairs.add((canonical(clues), puzzle_digest(4, clues, solution)))
    forms, digests = {form for form, _ in pairs}, {digest for _, digest in pairs}
    assert len(forms) == len(pairs) > 150  # no form has two digests
    assert len(digests) == len(forms)
