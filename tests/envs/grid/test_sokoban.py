"""Sokoban: tasks, the exact solver, what is seen, how proposals are carried out."""

from collections import deque
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from troupe.envs.base import Skill
from troupe.envs.grid import sokoban_solver
from troupe.envs.grid.board import cell_words, parse_plan
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.sokoban_solver import Position, SearchLimitError, Solver
from troupe.envs.testing import check_world
from troupe.experience import Task

Begin = Callable[..., Sokoban]


def seen(world: Sokoban, agent: str) -> str:
    return str(world.observe(agent)[-1]["content"])


# ---- tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boxes", [1, 2])
@pytest.mark.parametrize("size", [6, 7, 8])
async def test_every_task_can_be_solved_in_the_world(size: int, boxes: int) -> None:
    world = Sokoban(size=size, boxes=boxes, inner_walls=4, max_solution=20, team="solo", max_moves=20, horizon=1)
    for task in world.tasks("train", 6, seed=0):
        solver = Solver(size, task.data["walls"], task.data["goals"])
        moves = solver.solution(task.data["worker"], task.data["boxes"])
        assert moves is not None and 4 <= len(moves) == task.data["distance"] <= 20
        world.reset(task)
        result = await world.step({"solo": " ".join(moves)})
        assert result.success and result.team == 1 and result.info["moves"] == len(moves)


def test_what_tasks_are_made_of() -> None:
    world = Sokoban(size=7, boxes=2, inner_walls=5, min_moves=6, max_solution=12)
    border = {cell for cell in range(49) if cell // 7 in (0, 6) or cell % 7 in (0, 6)}
    for task in world.tasks("train", 30, seed=3):
        walls, boxes, goals = task.data["walls"], task.data["boxes"], task.data["goals"]
        assert border <= walls and len(walls - border) <= 5
        assert len(boxes) == len(goals) == 2 and boxes != goals
        assert not walls & (boxes | goals | {task.data["worker"]}) and task.data["worker"] not in boxes
        assert 6 <= task.data["distance"] <= 12


async def test_the_contract_with_two_boxes() -> None:
    await check_world(Sokoban(boxes=2), tasks=2, local=(0.0, 0.1), solved=0.5)


# ---- the solver -----------------------------------------------------------------------------------------------------


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
    assert sokoban_solver.moved(3, walls, *position(row), "R") == (position(after) if after else None)


def test_pushes_of_a_lone_box() -> None:
    """To the centre of a 5 x 5 grid: from the edges never; with a wall at 2,0 the box at 2,1 goes round."""
    open_grid = {6: 2, 7: 1, 8: 2, 11: 1, 12: 0, 13: 1, 16: 2, 17: 1, 18: 2}
    assert sokoban_solver.push_distances(5, (), {12}) == open_grid
    assert sokoban_solver.push_distances(5, {10}, {12}) == open_grid | {11: 3}


def by_brute_force(size: int, walls: frozenset[int], goals: frozenset[int], start: Position) -> int | None:
    """The distance by walking forward from ``start`` over rows and columns: the rules written down once more."""
    queue, found = deque([start]), {start: 0}
    while queue:
        position = worker, boxes = queue.popleft()
        if boxes == goals:
            return found[position]
        row, column = divmod(worker, size)
        for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            line = [(row + k * dr, column + k * dc) for k in (1, 2)]
            here, beyond = (r * size + c if 0 <= r < size and 0 <= c < size else None for r, c in line)
            if here is None or here in walls:
                continue
            pushed = boxes
            if here in boxes:
                if beyond is None or beyond in walls or beyond in boxes:
                    continue
                pushed = boxes - {here} | {beyond}
            if (here, pushed) not in found:
                found[here, pushed] = found[position] + 1
                queue.append((here, pushed))
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
            position = sokoban_solver.moved(size, walls, *position, move)
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


def test_a_search_that_is_given_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = Sokoban().tasks("train", 1, seed=0)
    monkeypatch.setattr(sokoban_solver, "TABLE_LIMIT", 0)
    solver = Solver(6, task.data["walls"], task.data["goals"], expansions=2)
    with pytest.raises(SearchLimitError, match="within 2 positions on a 6-wide board"):
        solver.distance(task.data["worker"], task.data["boxes"])


# ---- what is seen ---------------------------------------------------------------------------------------------------

ROOM = """
    ######
    #..#.#
    #.$..#
    #..#.#
    #@..o#
    ######
"""


def test_the_picture_is_the_world_as_it_is(sokoban: Begin) -> None:
    assert sokoban(ROOM).picture() == ("######", "#  # #", "# $  #", "#  # #", "#@  .#", "######")


def test_every_view_by_hand(sokoban: Begin) -> None:
    pair = sokoban(ROOM)
    assert pair.observe("tool")[0] == {"role": "system", "content": "tool sokoban"}
    assert seen(pair, "tool") == "walls 1,3 3,3 box 2,2 goal 4,4 last start"
    assert seen(pair, "plan") == "near walls box goal at 4,1 last start proposal none check none"
    full = sokoban(ROOM, tool_view="full", planner_view="full")
    assert seen(full, "tool") == "walls 1,3 3,3 box 2,2 goal 4,4 at 4,1 last start"
    assert seen(full, "plan") == "walls 1,3 3,3 box 2,2 goal 4,4 at 4,1 last start proposal none check none"
    assert seen(sokoban(ROOM, team="solo"), "solo") == "walls 1,3 3,3 box 2,2 goal 4,4 at 4,1 last start"
    wider = sokoban(ROOM, view_radius=2)
    assert seen(wider, "plan") == "near walls 3,3 box 2,2 goal at 4,1 last start proposal none check none"


@st.composite
def positions(draw: st.DrawFn) -> dict[str, frozenset[int] | int]:
    """A room of 6 x 6 with two boxes, solvable or not."""
    inside = [r * 6 + c for r in range(1, 5) for c in range(1, 5)]
    cells = draw(st.permutations(inside))
    walls = frozenset(range(36)) - frozenset(inside) | frozenset(cells[5 : 5 + draw(st.integers(0, 3))])
    goals = draw(st.sampled_from([frozenset(cells[3:5]), frozenset([cells[1], cells[3]])]))
    return {"walls": walls, "worker": cells[0], "boxes": frozenset(cells[1:3]), "goals": goals}


def placed(data: dict[str, frozenset[int] | int], **settings: object) -> Sokoban:
    """A world with the pieces on the board, whether or not it can be solved."""
    world = Sokoban(boxes=2, **settings)  # type: ignore[arg-type]
    world._start(Task("any", "test", data))
    return world


def window_of(cell: int, radius: int) -> set[int]:
    row, column = divmod(cell, 6)
    return {c for c in range(36) if abs(c // 6 - row) <= radius and abs(c % 6 - column) <= radius}


def dressed(data: dict, other: dict, window: set[int]) -> dict:
    """``data`` within the window and ``other`` outside, with the worker of ``data``."""
    mixed = {
        key: (data[key] & window) | (other[key] - window) - {data["worker"]} for key in ("walls", "boxes", "goals")
    }
    return {**mixed, "worker": data["worker"]}


@given(positions())
def test_the_map_does_not_hold_the_worker(data: dict) -> None:
    world = placed(data)
    told = seen(world, "tool")
    assert "at" not in told.split()
    assert f"goal {' '.join(cell_words(6)[cell] for cell in sorted(data['goals']))} last" in told
    inside = [cell for cell in range(36) if cell not in data["walls"] | data["boxes"]]
    assert {seen(placed(data | {"worker": cell}), "tool") for cell in inside} == {told}


@given(positions(), st.integers(0, 2))
def test_every_wall_inside_is_listed_in_full_views(data: dict, radius: int) -> None:
    border = {cell for cell in range(36) if {cell // 6, cell % 6} & {0, 5}}
    expected = [cell_words(6)[cell] for cell in sorted(data["walls"] - border)]
    for agent, world in (
        ("tool", placed(data, view_radius=radius)),
        ("plan", placed(data, planner_view="full")),
        ("solo", placed(data, team="solo", view_radius=radius)),
    ):
        words = seen(world, agent).split()
        assert words[words.index("walls") + 1 : words.index("box")] == expected


@given(positions(), positions(), st.integers(0, 2))
def test_the_planner_sees_its_window_and_nothing_else(data: dict, other: dict, radius: int) -> None:
    window = window_of(data["worker"], radius)
    border = {cell for cell in range(36) if {cell // 6, cell % 6} & {0, 5}}
    told = seen(placed(data, view_radius=radius), "plan")
    words = told.split()
    assert words[0] == "near"
    for name, after, cells in (
        ("walls", "box", data["walls"] - border),
        ("box", "goal", data["boxes"]),
        ("goal", "at", data["goals"]),
    ):
        listed = words[words.index(name) + 1 : words.index(after)]
        assert listed == [cell_words(6)[cell] for cell in sorted(cells & window)]
    # Whatever is changed out of sight, it reads the same.
    assert seen(placed(dressed(data, other, window), view_radius=radius), "plan") == told


PROPOSALS = st.sampled_from(["", "box 2,2 D R", "box 1,3 L 1,2 D", "R", "box 3,3 U", "nonsense"])


@given(positions(), positions(), PROPOSALS, st.sampled_from(["expert", "novice", "bungler"]), st.integers(0, 99))
async def test_demonstrators_know_only_what_is_seen(
    data: dict, other: dict, proposal: str, skill: Skill, seed: int
) -> None:
    """Two boards that look the same to an agent get the same words."""
    here = placed(data)
    elsewhere = next(cell for cell in range(36) if cell not in data["walls"] | data["boxes"] | {data["worker"]})
    there = placed(data | {"worker": elsewhere})
    assert len({world.demonstration("tool", Random(seed), skill=skill) for world in (here, there)}) == 1
    there = placed(dressed(data, other, window_of(data["worker"], 1)))
    assert seen(here, "plan") == seen(there, "plan")
    for world in (here, there):
        world._propose(parse_plan(proposal, world.size, world.max_moves, may_name_box=True))
    assert len({world.demonstration("plan", Random(seed), skill=skill) for world in (here, there)}) == 1


# ---- proposals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proposal", "check", "team", "moves"),
    [
        ("box 2,2 D D R R", "goal", 1.0, 4),  # the worker walks round to each pushing side by itself
        ("D D R R", "goal", 1.0, 4),  # without a name: the first box that is not on a goal
        ("box 2,2 D 3,2 D 4,2", "ok", 0.0, 2),
        ("box 2,2 R R D D", "hit", 0.0, 4),  # no way round to the side above
        ("box 2,2 D R", "hit", 0.0, 2),  # a wall
        ("box 2,2 U R", "hit", 0.0, 2),
        ("box 3,2 R", "hit", 0.0, 1),  # no box there
        ("box 2,2", "ok", 0.0, 0),
        ("", "ok", 0.0, 0),
        ("D D R R R R R", "goal", 1.0, 7),  # it ends where the goal is reached
        ("D D X", "malformed", 0.0, 0),
    ],
)
async def test_proposals_by_hand(sokoban: Begin, proposal: str, check: str, team: float, moves: int) -> None:
    world = sokoban(ROOM)
    pieces = world._pieces()
    result = await world.step({"tool": proposal})
    assert (result.team, result.info["moves"], result.info["blocked"]) == (team, moves, check == "hit")
    assert seen(world, "plan").split()[-1] == check
    assert world._pieces() == pieces  # a proposal moves nothing


@pytest.mark.parametrize(("proposal", "check"), [("R R", "goal"), ("L", "hit"), ("R L", "hit")])
async def test_a_push_needs_a_way_to_its_side(sokoban: Begin, proposal: str, check: str) -> None:
    world = sokoban("###### #@$.o# #.#### #.#..# #.#..# ######")
    await world.step({"tool": proposal})
    assert seen(world, "plan").split()[-1] == check
