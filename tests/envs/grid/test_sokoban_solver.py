"""The exact solver: moves, pushes, and distances against brute force."""

from collections import deque

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from troupe.envs.grid import sokoban_solver
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.sokoban_solver import Position, SearchLimitError, Solver


@pytest.mark.parametrize(
    ("row", "after"),
    [
        ("@..", ".@."),
        ("@#.", None),
        ("@$.", ".@$"),
        ("@$#", None),
        ("@$$", None),
        (".@$", None),  # the grid ends behind the box
        ("..@", None),
    ],
)
def test_one_move_to_the_right(row: str, after: str | None) -> None:
    def position(row: str) -> Position:
        return row.index("@"), frozenset(cell for cell, sign in enumerate(row) if sign == "$")

    walls = {cell for cell, sign in enumerate(row) if sign == "#"}
    assert sokoban_solver.move_worker(3, walls, *position(row), "R") == (position(after) if after else None)


def test_pushes_of_a_lone_box() -> None:
    """To the centre of a 5 x 5 grid: from the edges never; with a wall at 2,0 the box at 2,1 goes round."""
    open_grid = {6: 2, 7: 1, 8: 2, 11: 1, 12: 0, 13: 1, 16: 2, 17: 1, 18: 2}
    assert sokoban_solver.push_distances(5, (), {12}) == open_grid
    assert sokoban_solver.push_distances(5, {10}, {12}) == open_grid | {11: 3}


def by_brute_force(size: int, walls: frozenset[int], goals: frozenset[int], start: Position) -> int | None:
    """The distance by a forward search from ``start`` over rows and columns: the rules, implemented once more."""
    queue, steps = deque([start]), {start: 0}
    while queue:
        position = worker, boxes = queue.popleft()
        if boxes == goals:
            return steps[position]
        row, column = divmod(worker, size)
        for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            line = [(row + k * dr, column + k * dc) for k in (1, 2)]
            here, beyond = (r * size + c if 0 <= r < size and 0 <= c < size else None for r, c in line)
            if here is None or here in walls:
                continue
            after = boxes
            if here in boxes:
                if beyond is None or beyond in walls or beyond in boxes:
                    continue
                after = boxes - {here} | {beyond}
            if (here, after) not in steps:
                steps[here, after] = steps[position] + 1
                queue.append((here, after))
    return None


@st.composite
def rooms(draw: st.DrawFn) -> tuple[int, frozenset[int], frozenset[int], Position]:
    """A board, with a border of walls or without, and a position."""
    size, count = draw(st.integers(3, 5)), draw(st.integers(1, 2))
    if draw(st.booleans()):
        size += 1
        border = frozenset(cell for cell in range(size**2) if {cell // size, cell % size} & {0, size - 1})
    else:
        border = frozenset()
    inside = st.sampled_from(sorted(frozenset(range(size**2)) - border))
    goals = draw(st.frozensets(inside, min_size=count, max_size=count))
    boxes = draw(st.frozensets(inside, min_size=count, max_size=count))
    worker = draw(inside)
    assume(worker not in boxes)
    walls = border | draw(st.frozensets(inside, max_size=3)) - goals - boxes - {worker}
    return size, walls, goals, (worker, boxes)


def searcher(size: int, walls: frozenset[int], goals: frozenset[int]) -> Solver:
    """A solver without a table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sokoban_solver, "TABLE_LIMIT", 0)
        return Solver(size, walls, goals)


@given(rooms())
def test_table_search_and_brute_force_agree(room: tuple[int, frozenset[int], frozenset[int], Position]) -> None:
    size, walls, goals, (worker, boxes) = room
    expected = by_brute_force(size, walls, goals, (worker, boxes))
    for solver in (Solver(size, walls, goals), searcher(size, walls, goals)):
        assert solver.distance(worker, boxes) == expected
        moves = solver.solution(worker, boxes)
        assert (moves is None) == (expected is None)
        position: Position | None = (worker, boxes)
        for move in moves or ():
            assert position is not None
            position = sokoban_solver.move_worker(size, walls, *position, move)
        assert moves is None or (len(moves) == expected and position is not None and position[1] == goals)


@given(rooms())
def test_the_first_solution_in_move_order(room: tuple[int, frozenset[int], frozenset[int], Position]) -> None:
    size, walls, goals, position = room
    assert Solver(size, walls, goals).solution(*position) == searcher(size, walls, goals).solution(*position)


@pytest.mark.parametrize(
    "picture",
    [
        "###### #$...# #....# #.@o.# #....# ######",  # in a corner
        "###### #....# #....# #@o..# #.$..# ######",  # along an edge without a goal
        "###### #o...# #.$$.# #.##.# #@..o# ######",  # two that block each other
    ],
)
def test_deadlocks_have_no_distance(picture: str) -> None:
    cells = {sign: frozenset(i for i, s in enumerate("".join(picture.split())) if s == sign) for sign in "#$o@"}
    (worker,) = cells["@"]
    for solver in (Solver(6, cells["#"], cells["o"]), searcher(6, cells["#"], cells["o"])):
        assert solver.distance(worker, cells["$"]) is None
        assert solver.solution(worker, cells["$"]) is None
    assert by_brute_force(6, cells["#"], cells["o"], (worker, cells["$"])) is None


def test_a_search_that_stops_early_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = Sokoban().tasks("train", 1, seed=0)
    monkeypatch.setattr(sokoban_solver, "TABLE_LIMIT", 0)
    solver = Solver(6, task.data["walls"], task.data["goals"], expansions=2)
    with pytest.raises(SearchLimitError, match="within 2 positions on a 6-wide board"):
        solver.distance(task.data["worker"], task.data["boxes"])
