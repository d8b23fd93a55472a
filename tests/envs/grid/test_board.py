"""Square grids: neighbours, shortest paths, symmetries, canonical forms."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.grid import board as grid
from troupe.envs.grid.board import (
    OPPOSITE,
    MovePlan,
    annotate_moves,
    canonical_form,
    form_digest,
    neighbours,
    parse_plan,
    symmetries,
)

# ---- cells and ways -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 5])
def test_neighbours(size: int) -> None:
    around = neighbours(size)
    assert sum(len(ways) for ways in around) == 4 * size * (size - 1)
    for cell, ways in enumerate(around):
        for move, there in ways.items():
            assert around[there][OPPOSITE[move]] == cell
            assert abs(cell // size - there // size) + abs(cell % size - there % size) == 1
    assert [neighbours(3)[4][move] for move in "UDLR"] == [1, 7, 3, 5]


@given(st.integers(1, 7), st.integers(0, 48), st.integers(0, 4))
def test_window(size: int, centre: int, radius: int) -> None:
    centre %= size**2
    near = {
        cell
        for cell in range(size**2)
        if max(abs(cell // size - centre // size), abs(cell % size - centre % size)) <= radius
    }
    assert grid.window(size, centre, radius) == near


def all_ways(size: int, walls: frozenset[int], start: int, goals: frozenset[int]) -> list[str]:
    """Every shortest way, by writing down all ways of one more move at a time without looking back."""
    ways = {"": start}
    visited: set[int] = set()
    while ways:
        shortest = [way for way, cell in ways.items() if cell in goals]
        if shortest:
            return shortest
        visited.update(ways.values())
        longer = {}
        for way, cell in ways.items():
            row, column = divmod(cell, size)
            steps = (("U", row - 1, column), ("D", row + 1, column), ("L", row, column - 1), ("R", row, column + 1))
            for move, r, c in steps:
                there = r * size + c
                if 0 <= r < size and 0 <= c < size and there not in walls and there not in visited:
                    longer[way + move] = there
        ways = longer
    return []


@st.composite
def mazes(draw: st.DrawFn) -> tuple[int, frozenset[int], int, frozenset[int]]:
    size = draw(st.integers(1, 5))
    board = range(size**2)
    walls = draw(st.frozensets(st.sampled_from(board), max_size=size**2 // 2))
    start = draw(st.sampled_from(board))
    goals = draw(st.frozensets(st.sampled_from(board), min_size=1, max_size=2))
    return size, walls - {start} - goals, start, goals


@given(mazes())
def test_shortest_paths_against_all_paths(maze: tuple[int, frozenset[int], int, frozenset[int]]) -> None:
    size, walls, start, goals = maze
    ways = all_ways(size, walls, start, goals)
    path = grid.shortest_path(size, walls, start, goals)
    assert path == (list(min(ways, key=lambda way: ["UDLR".index(move) for move in way])) if ways else None)
    assert grid.distances(size, walls, goals).get(start) == (len(ways[0]) if ways else None)


# ---- symmetries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 6])
def test_the_symmetries_are_the_dihedral_group(size: int) -> None:
    maps = symmetries(size)
    identity = tuple(range(size**2))
    assert len(set(maps)) == 8 and identity in maps
    for one, other in product(maps, maps):
        assert tuple(one[cell] for cell in other) in maps  # closed; with finitely many bijections, that makes a group
    for image in maps:
        assert sorted(image) == list(identity)
        for cell, ways in enumerate(neighbours(size)):
            assert {image[there] for there in ways.values()} == set(neighbours(size)[image[cell]].values())

    def order(image: tuple[int, ...]) -> int:
        power, n = image, 1
        while power != identity:
            power, n = tuple(image[cell] for cell in power), n + 1
        return n

    assert Counter(map(order, maps)) == {1: 1, 2: 5, 4: 2}  # of the groups of 8, only the square's


@st.composite
def boards(draw: st.DrawFn, size: int) -> list[frozenset[int]]:
    return [draw(st.frozensets(st.integers(0, size**2 - 1), max_size=3)) for _ in range(2)]


@given(boards(5), st.integers(0, 7))
def test_the_canonical_form_is_invariant(board: list[frozenset[int]], number: int) -> None:
    image = symmetries(5)[number]
    rotation = [frozenset(image[cell] for cell in layer) for layer in board]
    assert canonical_form(5, rotation) == canonical_form(5, board)


@given(boards(2), boards(2))
def test_equal_canonical_forms_are_equal_boards(one: list[frozenset[int]], other: list[frozenset[int]]) -> None:
    images = [[frozenset(image[cell] for cell in layer) for layer in one] for image in symmetries(2)]
    assert (canonical_form(2, one) == canonical_form(2, other)) == (other in images)


def test_the_digest_knows_size_and_layers() -> None:
    forms = [(3, ((1,), (2,))), (4, ((1,), (2,))), (3, ((1, 2), ())), (3, ((), (1, 2)))]
    names = {form_digest(size, form) for size, form in forms}
    assert len(names) == 4 and all(len(name) == 12 for name in names)
    assert form_digest(3, ((1,), (2,))) == "ab99853439b2"  # stable for ever: splits and task ids depend on it


# ---- the compact notation of the grid worlds -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("", MovePlan()),
        ("  \n ", MovePlan()),
        ("R", MovePlan(("R",))),
        ("R D", MovePlan(("R", "D"))),
        ("\tR\n\nD  L ", MovePlan(("R", "D", "L"))),
        ("R 0,1 D 1,1", MovePlan(("R", "D"))),
        ("R D 1,1", MovePlan(("R", "D"))),
        ("R 3,3", MovePlan(("R",))),  # a note is not checked
        ("box 2,2", MovePlan((), 10)),
        ("box 2,2 D 3,2 R", MovePlan(("D", "R"), 10)),
        ("U U U U U U", MovePlan(("U",) * 5)),  # the sixth is one too many
        ("R 0,1 " * 6, MovePlan(("R",) * 5)),
    ],
)
def test_well_formed(text: str, plan: MovePlan) -> None:
    assert parse_plan(text, size=4, max_moves=5, may_name_box=True) == plan


@pytest.mark.parametrize(
    "text",
    [
        *("r", "RD", "R,", "R.", "up", "X", "R X", "X R", "[R]", "R\u200b", "\ufeffR", "Ｒ", "Я", "𝐑", "R\x00"),
        *("0,1", "0,1 R", "R 0,1 0,2", "R 4,0", "R 0,4", "R -1,0", "R 00,1", "R 0, 1", "R (0,1)", "R ０,１", "R ٠,١"),
        *("box", "box R", "box 4,4 R", "box 1,1 2,2", "box 1,1 box 1,1 R", "R box 1,1", "Box 1,1 R", "box1,1 R"),
        *("check goal", "R check goal", "proposal R", "none", "last ok", "at 0,0", "goal 1,1", "R R R R R R X"),
    ],
)
def test_malformed_messages_have_no_moves(text: str) -> None:
    assert parse_plan(text, size=4, max_moves=5, may_name_box=True) == MovePlan(malformed=True)


def test_a_box_that_may_not_be_named_is_malformed() -> None:
    assert parse_plan("box 2,2 D", size=4, max_moves=5) == MovePlan(malformed=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" box 2,2  D 3,2 R ", "box 2,2 D 3,2 R"),
        ("R 0,1 " * 3, "R 0,1 R 0,1"),
        ("R R R 0,1 R", "R R"),
        ("R R 0,1 D 1,1 D", "R R 0,1"),
        ("R R R X", ""),
    ],
)
def test_words_end_with_the_last_move_that_counts(text: str, words: str) -> None:
    assert " ".join(parse_plan(text, size=4, max_moves=2, may_name_box=True).words) == words


WORDS = st.one_of(st.sampled_from([*"UDLR", "box", "0,0", "1,2", "3,3", "9,9", "check", ""]), st.text(max_size=4))


@given(st.one_of(st.text(), st.lists(WORDS, max_size=12).map(" ".join)))
def test_any_text_can_be_read(text: str) -> None:
    plan = parse_plan(text, size=4, max_moves=5, may_name_box=True)
    assert len(plan.moves) <= 5 and set(plan.moves) <= set("UDLR")
    assert plan.box is None or 0 <= plan.box < 16
    assert not plan.malformed or (plan.moves, plan.box) == ((), None)


@given(st.lists(st.sampled_from("UDLR"), max_size=8), st.integers(0, 15))
def test_annotated_moves_read_back(moves: list[str], start: int) -> None:
    words = annotate_moves(4, start, moves)
    inside = []
    row, column = divmod(start, 4)
    for move in moves:
        row += {"U": -1, "D": 1}.get(move, 0)
        column += {"L": -1, "R": 1}.get(move, 0)
        if not (0 <= row < 4 and 0 <= column < 4):
            break
        inside += [move, f"{row},{column}"]
    assert words == inside
    assert parse_plan(" ".join(words), size=4, max_moves=8) == MovePlan(tuple(inside[::2]))
