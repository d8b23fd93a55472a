"""Turn taking, rewards by hand, and settings of the two-role worlds."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from troupe.envs.grid.board import vocabulary
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban

# From S to G are 4 moves; the map lacks the wall above S.
LANE = """
    ?.?..
    S...G
    .....
    .....
    .....
"""
# The worker pushes the box right twice: 2 moves.
PUSH = """
    ######
    #....#
    #@$.o#
    #....#
    #....#
    ######
"""
BOTH = pytest.mark.parametrize("kind", [PlanPath, Sokoban])


def prompt_of(world: PlanPath | Sokoban, agent: str) -> str:
    return str(world.observe(agent)[-1]["content"])


# ---- turns ----------------------------------------------------------------------------------------------------------


async def test_tool_and_planner_take_turns(plan_path: Callable[..., PlanPath]) -> None:
    world = plan_path(LANE, horizon=2)
    assert world.agents == ("tool", "plan")
    for turn in range(2):
        assert (world.turn, world.next_agents()) == (turn, ("tool",))
        assert not (await world.step({"tool": "R R 1,2"})).done
        assert (world.turn, world.next_agents()) == (turn, ("plan",))
        assert prompt_of(world, "plan").endswith(f"proposal R R 1,2 check ok 1,{turn + 2}")
        result = await world.step({"plan": "R"})
        assert prompt_of(world, "tool").endswith(f"at 1,{turn + 1} goal 1,4 last ok")
    assert result.done and not result.success
    assert (world.turn, world.next_agents()) == (2, ())


async def test_solo_acts_every_turn(sokoban: Callable[..., Sokoban]) -> None:
    world = sokoban(PUSH, team="solo", horizon=3)
    assert world.agents == ("solo",)
    for turn in range(3):
        assert (world.turn, world.next_agents()) == (turn, ("solo",))
        result = await world.step({"solo": ""})
    assert result.done and world.next_agents() == ()


async def test_the_proposal_is_for_one_turn(plan_path: Callable[..., PlanPath]) -> None:
    world = plan_path(LANE)
    await world.step({"tool": "R"})
    await world.step({"plan": ""})
    await world.step({"tool": ""})
    assert prompt_of(world, "plan").endswith("proposal none check ok 1,0")


@pytest.mark.parametrize(
    ("text", "last"), [("R", "ok"), ("", "ok"), ("U", "hit"), ("R U D", "hit"), ("R up", "malformed"), ("L", "hit")]
)
async def test_the_tool_sees_the_result_of_the_moves(plan_path: Callable[..., PlanPath], text: str, last: str) -> None:
    world = plan_path(LANE.replace("?.?", "???"))
    await world.step({"tool": ""})
    await world.step({"plan": text})
    assert prompt_of(world, "tool").split()[-1] == last


async def test_moves_end_at_the_first_that_is_blocked(plan_path: Callable[..., PlanPath]) -> None:
    world = plan_path(LANE, team="solo")
    result = await world.step({"solo": "R R U R R"})
    assert (result.info["blocked"], world.at) == (True, 7)


@pytest.mark.parametrize("actions", [{}, {"plan": ""}, {"tool": "", "plan": ""}, {"solo": ""}, {"nobody": "R"}])
async def test_others_may_not_speak(plan_path: Callable[..., PlanPath], actions: dict[str, str]) -> None:
    world = plan_path(LANE)
    with pytest.raises(ValueError, match="plan_path expects a message of tool, got one of"):
        await world.step(actions)


@pytest.mark.parametrize("actions", [{}, {"solo": ""}])
async def test_nobody_may_speak_after_the_end_or_before_the_start(
    plan_path: Callable[..., PlanPath], actions: dict[str, str]
) -> None:
    world = plan_path(LANE, team="solo")
    assert (await world.step({"solo": "R R R R"})).success
    for silent in (world, PlanPath(team="solo")):
        with pytest.raises(ValueError, match="over or not begun"):
            await silent.step(actions)


# ---- rewards --------------------------------------------------------------------------------------------------------


async def test_rewards_of_the_planner_on_the_way(plan_path: Callable[..., PlanPath]) -> None:
    """A tenth of the share of the 4 moves that it comes nearer than ever before; 1 to the team at the goal."""
    world = plan_path(LANE)
    for text, local, team in (("R", 0.025, 0), ("L", 0.0, 0), ("R R", 0.025, 0), ("R R", 0.05, 1)):
        await world.step({"tool": ""})
        result = await world.step({"plan": text})
        assert result.local == {"plan": pytest.approx(local)}
        assert (result.team, result.success, result.done) == (team, bool(team), bool(team))


@pytest.mark.parametrize(
    ("share", "text", "local", "team"),
    [
        (0.1, "R", 0.05, 0),
        (0.5, "R", 0.25, 0),
        (0.1, "R R", 0.1, 1),
        (0.0, "R R", 0.0, 1),
        (0.1, "R R R R", 0.1, 1),  # it ends at the goal
        (0.1, "U R", 0.0, 0),  # further away
        (0.1, "U R D D", 0.0, 0),  # the box is against the wall below, no solution is left
        (0.1, "R X", 0.0, 0),
    ],
)
@pytest.mark.parametrize("agent", ["plan", "solo"])
async def test_rewards_of_pushes(
    sokoban: Callable[..., Sokoban], agent: str, share: float, text: str, local: float, team: float
) -> None:
    world = sokoban(PUSH, team="solo" if agent == "solo" else "pair", local_share=share)
    if agent == "plan":
        await world.step({"tool": ""})
    result = await world.step({agent: text})
    assert result.local == {agent: pytest.approx(local)}
    assert (result.team, result.success) == (team, bool(team))


@pytest.mark.parametrize(
    ("text", "local", "team"),
    [
        ("box 2,2 R R", 0.1, 1),
        ("R R", 0.1, 1),
        ("R", 0.05, 0),  # 1 of 2 moves is left
        ("L", 0.0, 0),  # nobody can stand in the wall and push
        ("R L", 0.0, 0),  # back again, with the worker on the other side
        ("D R", 0.0, 0),  # walks round, then pushes; 5 of 2 moves are left
        ("D D D", 0.0, 0),  # a deadlock
        ("R X", 0.0, 0),
    ],
)
async def test_rewards_of_proposals(sokoban: Callable[..., Sokoban], text: str, local: float, team: float) -> None:
    result = await sokoban(PUSH).step({"tool": text})
    assert (result.local, result.team) == ({"tool": pytest.approx(local)}, team)
    assert not result.done and not result.success


async def test_a_proposal_is_measured_from_the_walkers_cell(plan_path: Callable[..., PlanPath]) -> None:
    """By the map, 3 of 4 moves are left after R; from there, R leaves 2 of 3."""
    world = plan_path(LANE)
    assert (await world.step({"tool": "R"})).local == {"tool": pytest.approx(0.1 / 4)}
    await world.step({"plan": "R"})
    assert (await world.step({"tool": "R"})).local == {"tool": pytest.approx(0.1 / 3)}


# ---- forks and keys -------------------------------------------------------------------------------------------------


async def test_the_key_knows_the_best_distance(plan_path: Callable[..., PlanPath]) -> None:
    """Two walkers stand on one cell after as many turns, but one of them was nearer before: progress pays it less."""
    rewards = {}
    for texts in (("R R", "L"), ("", "R")):
        world = plan_path(LANE, team="solo")
        for text in texts:
            await world.step({"solo": text})
        key, prompt = world.state_key(), prompt_of(world, "solo")
        rewards[key] = (prompt, (await world.step({"solo": "R"})).local["solo"])
    assert sorted(rewards.values()) == [(prompt, 0.0), (prompt, pytest.approx(0.025))]


async def test_the_anchor_is_the_agents_view(plan_path: Callable[..., PlanPath]) -> None:
    """One cell at other turns, at another best distance, and after another proposal."""
    scripts = ([("R R", "L")], [("", "R")], [("", ""), ("R", "R")], [("D", "D")])
    anchors = []
    for script in scripts:
        world = plan_path(LANE)
        for proposal, moves in script:
            await world.step({"tool": proposal})
            await world.step({"plan": moves})
        anchors.append((world.state_key(), world.anchor_key("tool")))
    assert len({state for state, _ in anchors}) == 4
    walkers = [anchor for _, anchor in anchors]
    assert walkers[1] == walkers[2] and len(set(walkers)) == 3


async def test_states_that_an_agent_cannot_tell_apart_have_one_anchor(sokoban: Callable[..., Sokoban]) -> None:
    """With ``tool_view=map`` the worker is not on the tool agent's board."""
    anchors = []
    for moves in ("U", "D"):
        world = sokoban(PUSH, tool_view="map", planner_view="full")
        await world.step({"tool": ""})
        await world.step({"plan": moves})
        anchors.append([world.anchor_key(agent) for agent in world.agents])
    (tool, plan), (other_tool, other_plan) = anchors
    assert tool == other_tool and plan != other_plan


async def test_equal_states_have_equal_keys(plan_path: Callable[..., PlanPath]) -> None:
    keys = set()
    for text in ("R D", "D R", "D 2,0 R"):
        world = plan_path(LANE, team="solo")
        await world.step({"solo": text})
        keys.add(world.state_key())
    assert len(keys) == 1


# ---- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "settings", "key"),
    [
        *((kind, {"team": "trio"}, "env.team=trio") for kind in (PlanPath, Sokoban)),
        *((kind, {"tool_view": "local"}, "env.tool_view=local") for kind in (PlanPath, Sokoban)),
        *((kind, {"planner_view": "map"}, "env.planner_view=map") for kind in (PlanPath, Sokoban)),
        *((kind, {"tool_message": "prose"}, "env.tool_message=prose") for kind in (PlanPath, Sokoban)),
        *((kind, {"horizon": 0}, "env.horizon") for kind in (PlanPath, Sokoban)),
        *((kind, {"max_moves": 0}, "env.max_moves") for kind in (PlanPath, Sokoban)),
        *((kind, {"view_radius": -1}, "env.view_radius") for kind in (PlanPath, Sokoban)),
        *((kind, {"local_share": 1.5}, "env.local_share") for kind in (PlanPath, Sokoban)),
        *((kind, {"local_share": -0.1}, "env.local_share") for kind in (PlanPath, Sokoban)),
        *((kind, {"local_share": float("nan")}, "env.local_share") for kind in (PlanPath, Sokoban)),
        (PlanPath, {"size": 1}, "env.size"),
        (PlanPath, {"walls": 0.6}, "env.walls"),
        (PlanPath, {"walls": -0.1}, "env.walls"),
        (PlanPath, {"unmapped": 1.1}, "env.unmapped"),
        (PlanPath, {"min_distance": 0}, "env.min_distance"),
        (PlanPath, {"size": 4, "min_distance": 7}, "env.min_distance"),
        (PlanPath, {"max_distance": 3}, "env.max_distance=3 must be at least env.min_distance=4"),
        (Sokoban, {"size": 3}, "env.size"),
        (Sokoban, {"boxes": 0}, "env.boxes"),
        (Sokoban, {"inner_walls": -1}, "env.inner_walls"),
        (Sokoban, {"size": 4, "boxes": 2}, "env.boxes=2"),
        (Sokoban, {"min_moves": 0}, "env.min_moves"),
        (Sokoban, {"min_moves": 20}, "env.min_moves=20"),
    ],
)
def test_bad_settings_are_refused_by_name(kind: Callable[..., Any], settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        kind(**settings)


@BOTH
def test_unknown_splits_and_agents_are_refused(kind: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="splits train, validation, test, not dev"):
        kind().tasks("dev", 1, seed=0)
    (task,) = kind().tasks("train", 1, seed=0)
    for team, stranger in (("pair", "solo"), ("solo", "plan")):
        world = kind(team=team)
        world.reset(task)
        with pytest.raises(ValueError, match=f"not {stranger}"):
            world.observe(stranger)


@pytest.mark.parametrize("world", [PlanPath(size=2, min_distance=1), Sokoban(size=4, inner_walls=0, min_moves=1)])
def test_a_split_that_holds_too_few_tasks_says_so(world: PlanPath | Sokoban) -> None:
    with pytest.raises(ValueError, match=r"found only \d of 25 different validation tasks"):
        world.tasks("validation", 25, seed=0)


@BOTH
def test_solved_and_unsolvable_tasks_are_refused(kind: Callable[..., Any], plan_path: Any, sokoban: Any) -> None:
    with pytest.raises(ValueError, match="is unsolvable"):
        if kind is PlanPath:
            plan_path("S#. #.. ..G")
        else:
            sokoban("##### #$..# #..o# #@..# #####")
    with pytest.raises(ValueError, match="is solved"):
        sokoban("##### #*..# #...# #@..# #####")


@BOTH
@pytest.mark.parametrize("skill", ["expert", "novice", "flawed"])
async def test_every_word_is_in_the_vocabulary(kind: Callable[..., Any], skill: str) -> None:
    rng, words = Random(0), set(vocabulary(10))
    for settings in ({}, {"team": "solo"}, {"tool_view": "full", "planner_view": "full"}):
        world = kind(**settings)
        for task in world.tasks("train", 10, seed=0):
            world.reset(task)
            while acting := world.next_agents():
                for message in world.observe(acting[0]):
                    assert set(message["content"].split()) <= words | {world.name}
                text = world.demonstration(acting[0], rng, skill=skill)
                assert set(text.split()) <= words
                result = await world.step({acting[0]: text})
                assert not result.info["malformed"] and result.info["moves"] <= 16
