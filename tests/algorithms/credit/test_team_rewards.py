"""The team rewards that credit rules read out of an episode are those of its return, in every world."""

from itertools import product
from typing import Any

import pytest

from troupe.algorithms.credit.iac import Iac
from troupe.algorithms.credit.maac import Maac
from troupe.envs.base import TeamEnv
from troupe.envs.workflow import ClientForAgent, WorkflowWorld
from troupe.experience import Episode, Sampling, Task
from troupe.rollout.chat_codec import ChatCodec
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.scripted import NoEngine, ScriptedClient
from troupe.setup.instantiation import build_world

from ...worlds import OF_EACH_CLASS, env_config

ALPHA = 0.5


async def played(world: TeamEnv, tasks: list[Task], skill: Any) -> list[Episode]:
    client = ScriptedClient("p", NoEngine(), ChatCodec(), 10**6, Sampling(), skill=skill)
    sampler = ChainSampler(k=2, alpha=ALPHA)
    found = await sampler.collect(world, tasks, dict.fromkeys(world.agents, client), 0)
    episodes = [episode for each in found for episode in each]
    assert not any(episode.failure for episode in episodes)
    return episodes


def check(episode: Episode) -> None:
    """The centralised critic sees all of the return, and so does the agent that speaks first; ``alpha`` is in both."""
    for node in episode.nodes:
        node.value = 0.0
    expected = pytest.approx(ALPHA * episode.outcomes[0].team_return, abs=1e-9)
    maac, iac = Maac(alpha=ALPHA), Iac(alpha=ALPHA)
    assert sum(maac.team_rewards(episode)) == expected
    (steps,) = maac.trajectories(episode)
    assert sum(step.reward - sum(map(maac.own_reward, step.nodes)) for step in steps) == expected
    first = iac.trajectories(episode)[0]
    assert sum(step.reward - iac.own_reward(step.nodes[0]) for step in first) == expected


@pytest.mark.parametrize("name", OF_EACH_CLASS)
@pytest.mark.slow
async def test_in_every_world(name: str) -> None:
    config = env_config(name)
    if "data" in config or config.get("train"):
        pytest.skip(f"{name} needs data")
    orders: list[dict[str, Any]] = [{"order": each} for each in ("sequential", "simultaneous") if "order" in config]
    for variant in orders or [{}]:
        world = build_world("env", config | variant)
        try:
            await world.open()
            for skill in ("expert", "flawed", "silent"):
                for episode in await played(world, world.tasks("train", 2, 0), skill):
                    check(episode)
        finally:
            await world.close()


@pytest.mark.parametrize("pure", [True, False])
async def test_in_workflows_whatever_the_order_of_calls(pure: bool) -> None:
    """All orders of up to four calls by two agents, each with a reward that is no sum of others."""

    async def calls(task: Task, client_for_agent: ClientForAgent) -> float:
        for number, agent in enumerate(task.data["agents"]):
            await client_for_agent(agent).chat([{"role": "user", "content": "?"}])
            client_for_agent(agent).reward(local=3.0, team=2.0**-number)
        return 1.0

    agents = ["a", "b"]
    world = WorkflowWorld(workflow=calls, tasks=list, agents=agents, horizon=4, pure=pure, limit_s=600)
    orders = [order for count in (1, 2, 3, 4) for order in product(agents, repeat=count)]
    tasks = [Task("".join(order), "train", {"agents": order}) for order in orders]
    try:
        for episode in await played(world, tasks, "silent"):
            rewards = (2.0**-number for number in range(len(episode.nodes)))
            assert episode.outcomes[0].team_return == 1 + sum(rewards), episode.name
            check(episode)
    finally:
        await world.close()
