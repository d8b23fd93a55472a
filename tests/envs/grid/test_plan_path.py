"""Plan-Path: tasks, what each agent sees, the check by the old map."""

from collections.abc import Callable
from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.base import Skill
from troupe.envs.grid.board import cell_words, distances, parse_plan
from troupe.envs.grid.plan_path import PlanPath
from troupe.experience import Task

Begin = Callable[..., PlanPath]


def prompt_of(world: PlanPath, agent: str) -> str:
    return str(world.observe(agent)[-1]["content"])


def walls_in(prompt: str) -> list[str]:
    words = prompt.split()
    return words[words.index("walls") + 1 : words.index("at")]


# ---- tasks ----------------------------------------------------------------------------------------------------------


def test_distances_are_bounded_from_both_sides() -> None:
    tasks = PlanPath(min_distance=3, max_distance=5).tasks("test", 100, seed=0)
    found = {distances(10, task.data["walls"], [task.data["goal"]])[task.data["start"]] for task in tasks}
    assert found == {3, 4, 5}


def test_the_data_of_tasks() -> None:
    tasks = PlanPath().tasks("train", 400, seed=0)
    for task in tasks:
        walls, start, goal = task.data["walls"], task.data["start"], task.data["goal"]
        assert not walls & {start, goal} and task.data["mapped"] <= walls
        assert distances(10, walls, [goal])[start] >= 4
    walls = [len(task.data["walls"]) / 100 for task in tasks]
    assert mean(walls) == pytest.approx(0.22, abs=0.015)
    unmapped = [1 - len(task.data["mapped"]) / len(task.data["walls"]) for task in tasks]
    assert mean(unmapped) == pytest.approx(0.15, abs=0.02)


@pytest.mark.parametrize("settings", [{"walls": 0.0}, {"unmapped": 0.0}, {"unmapped": 1.0}, {"size": 4}])
def test_the_ends_of_the_settings(settings: dict) -> None:
    for task in PlanPath(**settings).tasks("test", 10, seed=1):
        if "walls" in settings:
            assert not task.data["walls"]
        if settings.get("unmapped") == 0:
            assert task.data["mapped"] == task.data["walls"]
        if settings.get("unmapped") == 1:
            assert not task.data["mapped"]


# ---- views ----------------------------------------------------------------------------------------------------------

GRID = """
    S?..#
    .#...
    ...?.
    .#..#
    ....G
"""


def test_the_picture_is_the_world_as_it_is(plan_path: Begin) -> None:
    assert plan_path(GRID).picture() == ("@#  #", " #   ", "   # ", " #  #", "    .")


def test_every_view_by_hand(plan_path: Begin) -> None:
    pair = plan_path(GRID, view_radius=1)
    assert pair.observe("plan")[0] == {"role": "system", "content": "plan plan_path"}
    assert prompt_of(pair, "tool") == "walls 0,4 1,1 3,1 3,4 at 0,0 goal 4,4 last start"
    assert prompt_of(pair, "plan") == "near walls 0,1 1,1 at 0,0 last start proposal none check none"
    full = plan_path(GRID, tool_view="full", planner_view="full")
    everything = "walls 0,1 0,4 1,1 2,3 3,1 3,4 at 0,0 goal 4,4 last start"
    assert prompt_of(full, "tool") == everything
    assert prompt_of(full, "plan") == f"{everything} proposal none check none"
    assert prompt_of(plan_path(GRID, team="solo"), "solo") == everything


@st.composite
def grids(draw: st.DrawFn) -> dict[str, frozenset[int] | int]:
    """A grid of 6 x 6; the goal can be reached or not."""
    at, goal, *rest = draw(st.permutations(range(36)))
    walls = frozenset(rest[: draw(st.integers(0, 14))])
    mapped = frozenset(cell for cell in sorted(walls) if draw(st.booleans()))
    return {"walls": walls, "mapped": mapped, "start": at, "goal": goal}


def place(data: dict, **settings: object) -> PlanPath:
    world = PlanPath(**{"size": 6, **settings})  # type: ignore[arg-type]
    world._start(Task("any", "test", data))
    return world


@given(grids(), st.integers(0, 6))
def test_the_planner_sees_its_window_and_nothing_else(data: dict, radius: int) -> None:
    row, column = divmod(data["start"], 6)
    window = {c for c in range(36) if abs(c // 6 - row) <= radius and abs(c % 6 - column) <= radius}
    prompt = prompt_of(place(data, view_radius=radius), "plan")
    assert walls_in(prompt) == [cell_words(6)[cell] for cell in sorted(data["walls"] & window)]
    assert ("goal" in prompt.split()) == (data["goal"] in window)
    assert prompt.startswith("near ") == (len(window) < 36)
    outside = frozenset(range(36)) - window - {data["goal"]}
    assert prompt_of(place(data | {"walls": data["walls"] ^ outside}, view_radius=radius), "plan") == prompt
    assert prompt_of(place(data | {"mapped": frozenset()}, view_radius=radius), "plan") == prompt


MOVES = st.lists(st.sampled_from("UDLR"), max_size=10).map(" ".join)


@given(grids(), MOVES)
async def test_walls_off_the_map_are_hidden_from_the_tool_and_from_the_check(data: dict, proposal: str) -> None:
    """The tool's view, the check of its proposal and its local reward depend on the map alone."""
    prompts, checks, local = set(), set(), set()
    unmapped_walls = data["walls"] - data["mapped"]
    for walls in (data["walls"], data["mapped"], *(data["mapped"] | {cell} for cell in sorted(unmapped_walls))):
        world = place(data | {"walls": walls})
        prompts.add(prompt_of(world, "tool"))
        assert walls_in(prompt_of(world, "tool")) == [cell_words(6)[cell] for cell in sorted(data["mapped"])]
        if world._distance() is None:
            continue  # no task is like that
        world.reset(Task("any", "test", data | {"walls": walls}))
        local.add((await world.step({"tool": proposal})).local["tool"])
        words = prompt_of(world, "plan").split()
        checks.add(tuple(words[words.index("check") + 1 :]))
    assert len(prompts) == 1 and len(checks) <= 1 and len(local) <= 1


@given(grids(), grids(), MOVES, st.sampled_from(["expert", "novice", "flawed"]), st.integers(0, 99))
def test_demonstrators_know_only_their_view(data: dict, other: dict, proposal: str, skill: Skill, seed: int) -> None:
    """Two boards that look the same to an agent get the same words."""
    row, column = divmod(data["start"], 6)
    window = {c for c in range(36) if abs(c // 6 - row) <= 2 and abs(c % 6 - column) <= 2}
    outside = frozenset(range(36)) - window
    walls = (data["walls"] & window) | (other["walls"] & outside)
    goals = [data["goal"]] if data["goal"] in window else sorted(outside - walls)
    messages = set()
    for changed in (data, data | {"walls": walls, "mapped": frozenset(), "goal": goals[-1]}):
        world = place(changed, view_radius=2)
        world._plan = parse_plan(proposal, world.size, world.max_moves)
        assert world._view("plan").walls == data["walls"] & window
        messages.add(world.demonstration("plan", Random(seed), skill=skill))
    assert len(messages) == 1
    blind = place(data | {"walls": data["mapped"]}), place(data)
    assert len({world.demonstration("tool", Random(seed), skill=skill) for world in blind}) == 1


# ---- the check ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proposal", "check", "team", "local"),
    [
        ("D D D D R R R R", "goal 4,4", 1.0, 0.1),
        ("R R D D D D R R", "goal 4,4", 0.0, 0.1),  # 0,1 is a wall that the map lacks
        ("R R", "ok 0,2", 0.0, 0.025),  # by the map 6 of 8 moves are left
        ("R R R R", "hit 0,3", 0.0, 0.0375),  # 0,4 is a wall on the map: it ends before it
        ("U", "hit 0,0", 0.0, 0.0),
        ("", "ok 0,0", 0.0, 0.0),
        ("D D U", "ok 1,0", 0.0, 0.0125),
        ("D U", "ok 0,0", 0.0, 0.0),
        ("R R nonsense", "malformed", 0.0, 0.0),
    ],
)
async def test_the_check_is_by_the_map(plan_path: Begin, proposal: str, check: str, team: float, local: float) -> None:
    world = plan_path(GRID)
    result = await world.step({"tool": proposal})
    assert prompt_of(world, "plan").endswith(f" check {check}")
    assert (result.team, result.local["tool"]) == (team, pytest.approx(local))


async def test_with_full_views_the_check_is_the_truth(plan_path: Begin) -> None:
    world = plan_path(GRID, tool_view="full", planner_view="full")
    result = await world.step({"tool": "R R D D D D R R"})
    assert prompt_of(world, "plan").endswith(" check hit 0,0")
    assert (result.team, result.local["tool"], result.info["blocked"]) == (0.0, 0.0, True)
