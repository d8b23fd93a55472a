"""Several worlds at once."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.couplet.world import Couplet
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.mixed import Mixed
from troupe.envs.workflow import WorkflowWorld
from troupe.experience import Split, Task


def mixed(**shares: float) -> Mixed:
    return Mixed(worlds={"boxes": Sokoban(), "path": PlanPath(horizon=6)}, shares=shares or None)


@pytest.mark.parametrize(
    ("shares", "count", "parts"),
    [
        ({}, 8, {"boxes": 4, "path": 4}),
        ({"boxes": 1, "path": 2}, 9, {"boxes": 3, "path": 6}),
        ({"boxes": 0.5, "path": 0.5}, 2, {"boxes": 1, "path": 1}),
        ({"boxes": 0.1, "path": 0.2}, 3, {"boxes": 1, "path": 2}),
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
    st.integers(),
)
def test_parts_are_shares_within_one_task(shares: Mapping[str, float], count: int, seed: int) -> None:
    parts = Mixed(worlds=dict.fromkeys(shares, Sokoban()), shares=shares)._parts(count, str(seed))
    assert sum(part for part, _ in parts.values()) == count
    for name, (part, most) in parts.items():
        assert abs(part - count * shares[name] / sum(shares.values())) < 1
        assert part <= most <= part + 1


def test_the_shares_hold_in_the_mean_over_iterations() -> None:
    shares = {"a": 1, "b": 2, "c": 4}
    world = Mixed(worlds=dict.fromkeys(shares, Sokoban()), shares=shares)
    parts = [world._parts(5, f"train/{iteration}") for iteration in range(2000)]
    assert parts == [world._parts(5, f"train/{iteration}") for iteration in range(2000)]
    for name, share in shares.items():
        counts = Counter(part[name][0] for part in parts)
        due = 5 * share / 7
        assert set(counts) == {int(due), int(due) + 1}
        mean = sum(count * times for count, times in counts.items()) / counts.total()
        assert abs(mean - due) < 0.04  # 3.6 standard errors of a coin, which no part varies more than


def test_what_does_not_divide_changes_from_iteration_to_iteration() -> None:
    world = mixed()
    parts = [[task.task_id for task in world.tasks("train", 1, seed)] for seed in range(12)]
    assert {name.partition(":")[0] for (name,) in parts} == {"boxes", "path"}
    assert parts == [[task.task_id for task in world.tasks("train", 1, seed)] for seed in range(12)]


def test_a_world_with_too_few_tasks_is_found_out_with_every_seed() -> None:
    class Scarce(PlanPath):
        def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
            if count > 4:
                raise ValueError(f"there are 4 tasks, not {count}")
            return super().tasks(split, count, seed)

    world = Mixed(worlds={"boxes": Sokoban(), "path": Scarce()})
    assert len(world.tasks("train", 8, 0)) == 8
    for seed in range(6):  # half of them give it 4 of the 9
        with pytest.raises(ValueError, match="there are 4 tasks, not 5"):
            world.tasks("train", 9, seed)


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
    # Nobody moved; the world's name is in it.
    assert world.anchor_key("tool") == fork.anchor_key("tool") != world.world.anchor_key("tool")
    world.reset(tasks["boxes"])
    assert world.observe("tool")[0]["content"] == "tool sokoban"
    assert fork.observe("tool")[0]["content"] == "tool plan_path"


async def test_a_workflow_beside_another_world() -> None:
    """Its first agent is known once its program runs; the other world's at once."""

    def tasks(split: Split, count: int, seed: int) -> list[Task]:
        return [Task(f"{split}-{seed}-{i}", split, {}) for i in range(count)]

    workflow = WorkflowWorld(workflow=lambda task, client_for_agent: 0.0, tasks=tasks, agents=["ann", "plan"])
    for worlds in ({"program": workflow, "path": PlanPath()}, {"path": PlanPath(), "program": workflow}):
        world = Mixed(worlds=worlds)
        assert not world.begins_at_reset and set(world.stages) == {("ann",), ("plan",), ("tool",)}
        drawn = {task.world: task for task in world.tasks("train", 4, 0)}
        world.reset(drawn["program"])
        assert not world.begins_at_reset
        world.reset(drawn["path"])
        assert world.begins_at_reset and world.fork().begins_at_reset and world.next_agents() == ("tool",)
        assert len(world.stages) == 3
        await world.close()


def test_agents_of_different_worlds_are_all_there() -> None:
    assert Mixed(worlds={"a": Sokoban(), "b": Couplet()}).agents == ("tool", "plan", "first", "second")


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"boxes": 1}, r"env\.shares\.path must be above 0, got None"),
        ({"boxes": 1, "path": 0}, r"env\.shares\.path must be above 0, got 0"),
        ({"boxes": 1, "path": "much"}, r"env\.shares\.path must be a number, got 'much'"),
        ({"boxes": 1, "path": 1, "maze": 1}, r"env\.shares\.maze: there is no env\.worlds\.maze; worlds: boxes, path"),
    ],
)
def test_shares_of_no_sense_are_refused(shares: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mixed(**shares)


def test_strangers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"env\.worlds is empty"):
        Mixed(worlds={})
    with pytest.raises(ValueError, match=r"env\.worlds\.path must be a world, got 64"):
        Mixed(worlds={"path": 64})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="task x is of none of the worlds boxes, path"):
        mixed().reset(Task("x", "train", {}))
