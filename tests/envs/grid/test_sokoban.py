"""Sokoban: tasks, the views of the agents, how proposals are carried out."""

from collections.abc import Callable
from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.base import Skill
from troupe.envs.grid.board import cell_words, parse_plan
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.sokoban_solver import Solver
from troupe.experience import Split, Task

Begin = Callable[..., Sokoban]


def prompt_of(world: Sokoban, agent: str) -> str:
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


@pytest.mark.parametrize(
    ("split", "count", "settings", "expected"),
    [
        ("train", 40, {}, "a43c8a53094e"),
        ("test", 10, {}, "02934b6b2b8e"),
        ("validation", 3, {"size": 7, "boxes": 2, "max_solution": 20}, "7b485d58c54e"),
    ],
)
def test_the_levels_of_a_seed_stay_as_they_are(
    split: Split, count: int, settings: dict[str, int], expected: str
) -> None:
    """What runs learnt from and were scored on, however they are drawn."""
    tasks = Sokoban(**settings).tasks(split, count, ["train", "test", "validation"].index(split))
    rows = [
        (task.task_id, task.split, [sorted(v) if isinstance(v, frozenset) else v for v in task.data.values()])
        for task in tasks
    ]
    assert sha256(repr(rows).encode()).hexdigest()[:12] == expected


def test_the_data_of_tasks() -> None:
    world = Sokoban(size=7, boxes=2, inner_walls=5, min_moves=6, max_solution=12)
    border = {cell for cell in range(49) if cell // 7 in (0, 6) or cell % 7 in (0, 6)}
    for task in world.tasks("train", 30, seed=3):
        walls, boxes, goals = task.data["walls"], task.data["boxes"], task.data["goals"]
        assert border <= walls and len(walls - border) <= 5
        assert len(boxes) == len(goals) == 2 and boxes != goals
        assert not walls & (boxes | goals | {task.data["worker"]}) and task.data["worker"] not in boxes
        assert 6 <= task.data["distance"] <= 12


# ---- views ----------------------------------------------------------------------------------------------------------

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
    assert prompt_of(pair, "tool") == "walls 1,3 3,3 box 2,2 goal 4,4 last start"
    assert prompt_of(pair, "plan") == "near walls box goal at 4,1 last start proposal none check none"
    full = sokoban(ROOM, tool_view="full", planner_view="full")
    assert prompt_of(full, "tool") == "walls 1,3 3,3 box 2,2 goal 4,4 at 4,1 last start"
    assert prompt_of(full, "plan") == "walls 1,3 3,3 box 2,2 goal 4,4 at 4,1 last start proposal none check none"
    assert prompt_of(sokoban(ROOM, team="solo"), "solo") == "walls 1,3 3,3 box 2,2 goal 4,4 at 4,1 last start"
    wider = sokoban(ROOM, view_radius=2)
    assert prompt_of(wider, "plan") == "near walls 3,3 box 2,2 goal at 4,1 last start proposal none check none"


@st.composite
def positions(draw: st.DrawFn) -> dict[str, frozenset[int] | int]:
    """A room of 6 x 6 with two boxes, solvable or not."""
    inside = [r * 6 + c for r in range(1, 5) for c in range(1, 5)]
    cells = draw(st.permutations(inside))
    walls = frozenset(range(36)) - frozenset(inside) | frozenset(cells[5 : 5 + draw(st.integers(0, 3))])
    goals = draw(st.sampled_from([frozenset(cells[3:5]), frozenset([cells[1], cells[3]])]))
    return {"walls": walls, "worker": cells[0], "boxes": frozenset(cells[1:3]), "goals": goals}


def place(data: dict[str, frozenset[int] | int], **settings: object) -> Sokoban:
    """A world with the pieces on the board, whether or not it can be solved."""
    world = Sokoban(boxes=2, **settings)  # type: ignore[arg-type]
    world._start(Task("any", "test", data))
    return world


def window_of(cell: int, radius: int) -> set[int]:
    row, column = divmod(cell, 6)
    return {c for c in range(36) if abs(c // 6 - row) <= radius and abs(c % 6 - column) <= radius}


def with_other_outside(data: dict, other: dict, window: set[int]) -> dict:
    """``data`` within the window and ``other`` outside, with the worker of ``data``."""
    mixed = {
        key: (data[key] & window) | (other[key] - window) - {data["worker"]} for key in ("walls", "boxes", "goals")
    }
    return {**mixed, "worker": data["worker"]}


@given(positions())
def test_the_map_does_not_hold_the_worker(data: dict) -> None:
    world = place(data)
    prompt = prompt_of(world, "tool")
    assert "at" not in prompt.split()
    assert f"goal {' '.join(cell_words(6)[cell] for cell in sorted(data['goals']))} last" in prompt
    inside = [cell for cell in range(36) if cell not in data["walls"] | data["boxes"]]
    assert {prompt_of(place(data | {"worker": cell}), "tool") for cell in inside} == {prompt}


@given(positions(), st.integers(0, 2))
def test_every_wall_inside_is_listed_in_full_views(data: dict, radius: int) -> None:
    border = {cell for cell in range(36) if {cell // 6, cell % 6} & {0, 5}}
    expected = [cell_words(6)[cell] for cell in sorted(data["walls"] - border)]
    for agent, world in (
        ("tool", place(data, view_radius=radius)),
        ("plan", place(data, planner_view="full")),
        ("solo", place(data, team="solo", view_radius=radius)),
    ):
        words = prompt_of(world, agent).split()
        assert words[words.index("walls") + 1 : words.index("box")] == expected


@given(positions(), positions(), st.integers(0, 2))
def test_the_planner_sees_its_window_and_nothing_else(data: dict, other: dict, radius: int) -> None:
    window = window_of(data["worker"], radius)
    border = {cell for cell in range(36) if {cell // 6, cell % 6} & {0, 5}}
    prompt = prompt_of(place(data, view_radius=radius), "plan")
    words = prompt.split()
    assert words[0] == "near"
    for name, after, cells in (
        ("walls", "box", data["walls"] - border),
        ("box", "goal", data["boxes"]),
        ("goal", "at", data["goals"]),
    ):
        listing = words[words.index(name) + 1 : words.index(after)]
        assert listing == [cell_words(6)[cell] for cell in sorted(cells & window)]
    # Whatever is changed out of sight, it reads the same.
    assert prompt_of(place(with_other_outside(data, other, window), view_radius=radius), "plan") == prompt


PROPOSALS = st.sampled_from(["", "box 2,2 D R", "box 1,3 L 1,2 D", "R", "box 3,3 U", "nonsense"])


@given(positions(), positions(), PROPOSALS, st.sampled_from(["expert", "novice", "flawed"]), st.integers(0, 99))
async def test_demonstrators_know_only_their_view(
    data: dict, other: dict, proposal: str, skill: Skill, seed: int
) -> None:
    """Two boards that look the same to an agent get the same words."""
    here = place(data)
    elsewhere = next(cell for cell in range(36) if cell not in data["walls"] | data["boxes"] | {data["worker"]})
    there = place(data | {"worker": elsewhere})
    assert len({world.demonstration("tool", Random(seed), skill=skill) for world in (here, there)}) == 1
    there = place(with_other_outside(data, other, window_of(data["worker"], 1)))
    assert prompt_of(here, "plan") == prompt_of(there, "plan")
    for world in (here, there):
        world._propose(parse_plan(proposal, world.size, world.max_moves, may_name_box=True), fault="")
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
    assert prompt_of(world, "plan").split()[-1] == check
    assert world._pieces() == pieces  # a proposal moves nothing


@pytest.mark.parametrize(("proposal", "check"), [("R R", "goal"), ("L", "hit"), ("R L", "hit")])
async def test_a_push_needs_a_way_to_its_side(sokoban: Begin, proposal: str, check: str) -> None:
    world = sokoban("###### #@$.o# #.#### #.#..# #.#..# ######")
    await world.step({"tool": proposal})
    assert prompt_of(world, "plan").split()[-1] == check
