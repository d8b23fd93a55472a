"""Agents that act at the same time are asked at the same time, and answer as if asked one after another."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from troupe.envs.base import TeamEnv
from troupe.envs.couplet.world import Couplet
from troupe.evaluation.episodes import Actor, Earlier, PolicyActor, evaluate, play
from troupe.experience import Sampling, Task
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.playing import Answer
from troupe.rollout.policy_client import PolicyClient

BASE = "laptop_couplet"


@dataclass(frozen=True)
class Waits:
    """Says nothing before everybody was asked."""

    everybody: asyncio.Barrier

    async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
        async with asyncio.timeout(10):
            await self.everybody.wait()
        return Answer(agent)


class InTurn:
    """Asks ``actors`` one after another, in the order of the world's agents."""

    def __init__(self, actors: Mapping[str, Actor]) -> None:
        self.actors, self.order = actors, list(actors)
        self.said: dict[tuple[str, int, str], asyncio.Event] = {}

    def _event(self, *place: str | int) -> asyncio.Event:
        return self.said.setdefault(place, asyncio.Event())  # type: ignore[arg-type]

    async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
        for before in self.order[: self.order.index(agent)]:
            await self._event(task.task_id, env.turn, before).wait()
        message = await self.actors[agent].act(env, agent, task, earlier, seed)
        self._event(task.task_id, env.turn, agent).set()
        return message


async def test_who_acts_at_once_is_asked_at_once() -> None:
    world = Couplet(horizon=2)
    (task,) = world.tasks("test", 1, 0)
    actors = dict.fromkeys(world.agents, Waits(asyncio.Barrier(2)))
    result = await play(world, task, actors, 0)
    assert [(m["agent"], m["said"]) for m in result.messages] == [("first", "first"), ("second", "second")] * 2
    assert [m["step"] for m in result.messages] == [0, 0, 1, 1]


async def test_an_agent_that_fails_ends_the_episode() -> None:
    class Broken:
        async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
            raise RuntimeError("the engine is gone")

    world = Couplet(horizon=1)
    (task,) = world.tasks("test", 1, 0)
    actors: dict[str, Actor] = {"first": Waits(asyncio.Barrier(2)), "second": Broken()}
    with pytest.raises(RuntimeError, match="the engine is gone"):
        await play(world, task, actors, 0)


@pytest.mark.parametrize("temperature", [1.0, 0.0])
async def test_the_episodes_are_those_of_agents_asked_in_turn(temperature: float) -> None:
    """To the bit with a policy for each agent, in lockstep: every policy decodes the batches that it decoded."""
    world, tokenizer = Couplet(horizon=2), load_tokenizer(BASE)
    tasks = world.tasks("test", 12, 0)
    engines = {agent: TorchEngine({agent: load_model(BASE)}, tokenizer) for agent in world.agents}
    sampling = Sampling(temperature=temperature, max_tokens=12)
    at_once: dict[str, Actor] = {
        agent: PolicyActor(PolicyClient(agent, engine, tokenizer, 512, sampling)) for agent, engine in engines.items()
    }
    in_turn: dict[str, Actor] = dict.fromkeys(world.agents, InTurn(at_once))
    assert await evaluate(world, tasks, at_once, 3) == await evaluate(world, tasks, in_turn, 3)
    for engine in engines.values():
        await engine.close()
