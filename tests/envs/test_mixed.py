"""Several worlds at once."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.couplet import Couplet
from troupe.envs.mixed import Mixed
from troupe.envs.plan_path import PlanPath
from troupe.envs.sokoban import Sokoban
from troupe.experience import Task


def mixed(**shares: float) -> Mixed:
    return Mixed(worlds={"boxes": Sokoban(), "path": PlanPath(horizon=6)}, shares=shares or None)


@pytest.mark.parametrize(
    ("shares", "count", "parts"),
    [
        ({}, 9, {"boxes": 5, "path": 4}),
        ({"boxes": 1, "path": 2}, 9, {"boxes": 3, "path": 6}),
        ({"boxes": 0.5, "path": 0.5}, 2, {"boxes": 1, "path": 1}),
        ({"boxes": 1, "path": 9}, 1, {"path": 1}),
    ],
)
def test_every_world_has_its_part(shares: dict[str, float], count: int, parts: dict[str, int]) -> None:
    tasks = mixed(**shares).tasks("train", count, 0)
    assert Counter(task.world for task in tasks) == parts
    assert all(task.task_id.startswith(f"{task.world}:") for task in tasks)
    assert len({task.task_id for task in tasks}) == count


@given(
    st.dictionaries(st.sampled_from("abcde"), st.floats(0.01, 100), min_size=1),
    st.integers(0, 200),
)
def test_parts_are_shares_within_one_task(shares: Mapping[str, float], count: int) -> None:
    parts = Mixed(worlds=dict.fromkeys(shares, Sokoban()), shares=shares)._parts(count)
    assert sum(parts.values()) == count
    for name, part in parts.items():
        assert abs(part - count * shares[name] / sum(shares.values())) < 1


async def test_an_episode_is_played_in_one_world() -> None:
    world = mixed()
    assert (world.agents, world.horizon) == (("tool", "plan"), 6)
    tasks = {task.world: task for task in world.tasks("train", 4, 0)}
    world.reset(tasks["path"])
    assert world.observe("tool")[0]["content"] == "tool plan_path"
    fork = world.fork()
    await world.step({"tool": "R"})
    await world.step({"plan": ""})
    assert (world.turn, fork.turn) == (1, 0)
    assert world.state_key() != fork.state_key()
    world.reset(tasks["boxes"])
    assert world.observe("tool")[0]["content"] == "tool sokoban"
    assert fork.observe("tool")[0]["content"] == "tool plan_path"


def test_agents_of_different_worlds_are_all_there() -> None:
    assert Mixed(worlds={"a": Sokoban(), "b": Couplet()}).agents == ("tool", "plan", "first", "second")


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"boxes": 1}, r"env\.shares\.path must be above 0, got None"),
        ({"boxes": 1, "path": 0}, r"env\.shares\.path must be above 0, got 0"),
        ({"boxes": 1, "path": 1, "maze": 1}, r"env\.shares\.maze: there is no env\.worlds\.maze; worlds: boxes, path"),
    ],
)
def test_shares_of_no_sense_are_refused(shares: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mixed(**shares)


def test_strangers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"env\.worlds is empty"):
        Mixed(worlds={})
    with pytest.raises(ValueError, match="task x is of none of the worlds boxes, path"):
        mixed().reset(Task("x", "train", {}))
