"""Worlds as environments of PettingZoo, judged by its own test."""

import asyncio
import copy
from typing import Any

import pytest

pytest.importorskip("pettingzoo", reason="needs the extra [pettingzoo]")

from pettingzoo.test import api_test, seed_test

from troupe.envs.base import StepResult, TeamEnv
from troupe.envs.couplet.world import Couplet
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.mixed import Mixed
from troupe.envs.pettingzoo.aec import TeamAEC
from troupe.experience import Task

WORLDS: list[TeamEnv] = [Sokoban(), Sokoban(team="solo"), Couplet(), Mixed(worlds={"a": PlanPath(), "b": Couplet()})]


@pytest.mark.filterwarnings("ignore::UserWarning")  # observations that are no arrays, names without a number
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.name}-{len(world.agents)}")
def test_pettingzoo_accepts_it(world: TeamEnv) -> None:
    env = TeamAEC(world, max_length=50)
    api_test(env, num_cycles=30)
    env.close()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_seed_fixes_the_episode() -> None:
    seed_test(lambda: TeamAEC(Sokoban(), max_length=50), num_cycles=20)


def test_agents_in_turn(board: Task) -> None:
    env, world = TeamAEC(Sokoban()), Sokoban()
    world.reset(board)
    env.reset(options={"task": board})
    rewards: dict[str, list[float]] = {"tool": [], "plan": []}
    for agent in env.agent_iter(4):
        observation, reward, *_ = env.last()
        assert list(observation["messages"]) == world.observe(agent)
        rewards[agent].append(reward)
        result = asyncio.run(world.step({agent: "R"}))
        env.step("R")
    assert env.terminations == {"tool": True, "plan": True} and env.infos["plan"]["success"] is True
    for agent in rewards:
        assert env.infos[agent]["success"] and env.rewards[agent] == result.team + result.local.get(agent, 0.0)
    for _ in env.agent_iter():
        env.step(None)
    assert env.agents == []
    env.close()


class Recorded(Couplet):
    """Notes each joint action."""

    played: list[dict[str, str]]

    async def step(self, actions: Any) -> StepResult:
        self.played.append(dict(actions))
        return await super().step(actions)


def test_agents_at_once_are_asked_one_after_the_other_and_played_together() -> None:
    world = Recorded(horizon=1)
    world.played = []
    env = TeamAEC(world)
    env.reset(seed=3)
    before = env.observe("second")
    env.step("one line")
    assert env.agent_selection == "second" and env.observe("second") == before and world.played == []
    assert env.rewards == {"first": 0.0, "second": 0.0}
    env.step("another line")
    assert world.played == [{"first": "one line", "second": "another line"}] and all(env.terminations.values())
    env.close()


def test_what_is_no_text_is_refused() -> None:
    env = TeamAEC(Couplet(), max_length=5)
    env.reset(seed=0)
    for action in ("123456", 7, None):
        with pytest.raises(ValueError, match="first: an action is a text of up to 5 characters"):
            env.step(action)
    env.step("é\ud800日")
    env.close()


class Served(Couplet):
    """A world with a service, bound to the event loop that opened it."""

    loop: Any = None

    async def open(self) -> dict[str, bool | int | str]:
        Served.loop = asyncio.get_running_loop()
        return {}

    async def step(self, actions: Any) -> StepResult:
        assert asyncio.get_running_loop() is Served.loop
        return await super().step(actions)

    async def close(self) -> None:
        assert asyncio.get_running_loop() is Served.loop
        Served.loop = None


def test_services_run_on_one_event_loop() -> None:
    env = TeamAEC(Served(horizon=1))
    for seed in (0, 1):
        env.reset(seed=seed)
        env.step("a")
        env.step("b")
    assert Served.loop is not None
    env.close()
    assert Served.loop is None
    env.close()  # once more does nothing


async def test_inside_of_an_event_loop_as_in_a_notebook() -> None:
    env = TeamAEC(Couplet(horizon=1))
    env.reset(seed=0)
    env.step("a")
    env.step("b")
    assert all(env.terminations.values())
    env.close()


def test_a_copy_goes_its_own_way(board: Task) -> None:
    env = TeamAEC(Sokoban())
    env.reset(options={"task": board})
    before = env.observe("tool")
    fork = copy.deepcopy(env)
    for _ in fork.agent_iter(3):
        fork.step("R")
    assert (fork.agent_selection, env.agent_selection) == ("plan", "tool") and env.observe("tool") == before
    assert fork.observe("tool") != before and fork.action_space("tool") is env.action_space("tool")
    env.close()


def test_the_picture(board: Task) -> None:
    env = TeamAEC(Sokoban())
    env.reset(options={"task": board})
    assert "#@$ .#" in env.render().splitlines()
    env.close()
