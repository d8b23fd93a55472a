"""Dense local rewards by hand, what they leave open to exploitation, and the contract of worlds with them."""

from collections.abc import Callable
from typing import Any

import pytest

from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.sudoku import Sudoku
from troupe.envs.testing import check_world
from troupe.experience import Task

DENSE: dict[str, Any] = {"local_reward": "dense", "local_share": 1.0}
LANE = """
    S..G.
    .....
    .....
    .....
    .....
"""
ROOM = """
    ######
    #o...#
    #@$.o#
    #.$..#
    #....#
    ######
"""


async def local(world: Any, agent: str, message: str) -> float:
    return float((await world.step({agent: message})).local[agent])


# ---- Plan-Path ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moves", "reward"),
    [
        ("R R R", 3 * -0.01 + (3 - 0.99 * 2) + (2 - 0.99) + 1 + 1.0 + 0.5),  # the goal, the shortest way
        ("R", -0.01 + 3 - 0.99 * 2),
        ("U R", -0.1 + 0.01 * 3),  # the edge blocks the first move, and no other is made
        ("", -2.0),
        ("no moves", -2.0),
    ],
)
async def test_plan_path_by_hand(plan_path: Callable[..., PlanPath], moves: str, reward: float) -> None:
    solo = plan_path(LANE, team="solo", **DENSE)
    assert await local(solo, "solo", moves) == pytest.approx(reward)
    pair = plan_path(LANE, **DENSE)
    assert await local(pair, "tool", moves) == pytest.approx(reward)  # a proposal earns what it would
    assert pair.at == 0


async def test_the_shortest_way_counts_the_moves_of_earlier_turns(plan_path: Callable[..., PlanPath]) -> None:
    world = plan_path(LANE, team="solo", **DENSE)
    await world.step({"solo": "R"})
    last = 2 * -0.01 + (2 - 0.99) + 1
    assert await local(world.fork(), "solo", "R R") == pytest.approx(last + 1.5)
    assert await local(world, "solo", "L R R R") == pytest.approx(last + 0.02 * 2 - 0.01 + 1.0)


async def test_walking_to_and_fro_pays_and_the_goal_pays_more(plan_path: Callable[..., PlanPath]) -> None:
    """As the module's docstring says: an exploit of the published reward, kept, and so not the default."""
    row = "    S" + "." * 7 + "G.\n"
    world = plan_path("\n" + row + ("    " + "." * 10 + "\n") * 9, team="solo", **DENSE)
    farm, goal = " ".join(["D", "U"] * 8), " ".join(["R"] * 8)
    assert await local(world.fork(), "solo", farm) == pytest.approx(8 * (0.02 * 8 - 0.01))
    assert 1.0 < await local(world.fork(), "solo", farm) < 8.4 < await local(world.fork(), "solo", goal)
    assert (await plan_path(LANE, team="solo").step({"solo": "D U D U"})).local == {"solo": 0.0}  # the default


# ---- Sokoban --------------------------------------------------------------------------------------------------------


async def test_sokoban_by_hand(sokoban: Callable[..., Sokoban]) -> None:
    solo = sokoban(ROOM, team="solo", **DENSE)
    # The boxes are 2 and 3 moves from their nearest goals; pushed once right the first is 1, pushed twice 0 away.
    pushes = 2 * -0.01 + 0.1 * (5 - 0.99 * 4 + 4 - 0.99 * 3) + 1.0
    assert await local(solo, "solo", "R R") == pytest.approx(pushes)
    assert await local(sokoban(ROOM, **DENSE), "tool", "box 2,2 R R") == pytest.approx(pushes)
    away = -0.05 + 0.1 * (3 - 0.99 * 3)  # the wall blocks the box on its goal
    assert await local(solo, "solo", "R") == pytest.approx(away)


async def test_a_box_leaves_its_goal(sokoban: Callable[..., Sokoban]) -> None:
    room = "\n######\n#....#\n#@*.o#\n#..$.#\n#....#\n######\n"
    world = sokoban(room, team="solo", **DENSE)
    # The other box is 2 moves from its nearest goal, before and after.
    assert await local(world, "solo", "R") == pytest.approx(-0.01 - 0.5 + 0.1 * (2 - 0.99 * 3))


async def test_the_win_counts_ten(sokoban: Callable[..., Sokoban]) -> None:
    world = sokoban("\n######\n#....#\n#@$o.#\n#....#\n#....#\n######\n", team="solo", **DENSE)
    assert await local(world, "solo", "R") == pytest.approx(-0.01 + 0.1 * 1 + 1.0 + 10.0)


# ---- Sudoku ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "reward"),
    [
        ("0,1=2", 0.2 - 0.01 + 0.5 / 16 + 0.02 * 3 + 0.1 * 12 / 16 + 0.05),
        ("0,1=2 1,2=1 1,3=2 2,0=2 3,3=1", 5 * (0.2 - 0.01 + 0.5 / 16 + 0.06) + 0.1 * 70 / 16 + 4 * 0.05 + 2.5),
        ("0,1=3", -0.3),  # already in the row
        ("0,1=?", -0.3),
        ("", -2.0),
        ("0,0=2", -2.0),  # a clue
    ],
)
async def test_sudoku_by_hand(message: str, reward: float) -> None:
    world = Sudoku(**DENSE)
    world.reset(Task("by-hand", "test", {"clues": (1, 0, 3, 4, 3, 4, 0, 0, 0, 1, 4, 3, 4, 3, 2, 0)}))
    assert await local(world, "tool", message) == pytest.approx(reward)


async def test_filling_a_cell_again_costs() -> None:
    world = Sudoku(team="solo", **DENSE)
    world.reset(Task("by-hand", "test", {"clues": (1, 0, 3, 4, 3, 4, 0, 0, 0, 1, 4, 3, 4, 3, 2, 0)}))
    once = await local(world, "solo", "0,1=2")
    assert await local(world, "solo", "0,1=2") == pytest.approx(-0.3) and once < 2.5


# ---- the contract ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("world", [PlanPath, Sokoban, Sudoku])
@pytest.mark.parametrize("team", ["pair", "solo"])
async def test_the_contract(world: Any, team: str) -> None:
    await check_world(world(team=team, **DENSE), tasks=2, local=(-10.0, 40.0))
