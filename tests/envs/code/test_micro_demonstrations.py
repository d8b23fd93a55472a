"""Demonstrators of micro-programs."""

from random import Random

import pytest

from troupe.envs.base import Skill
from troupe.envs.code import MicroCode
from troupe.sandbox import LocalSandbox


@pytest.mark.parametrize(
    ("skill", "least", "most"), [("expert", 1.0, 1.0), ("novice", 0.1, 0.6), ("flawed", 0.0, 0.25)]
)
@pytest.mark.slow
async def test_how_good_demonstrators_are(sandbox: LocalSandbox, skill: Skill, least: float, most: float) -> None:
    world, rng, wins = MicroCode(sandbox), Random(0), 0
    tasks = world.tasks("train", 100, 0)
    for task in tasks:
        env = world.fork()
        env.reset(task)
        while acting := env.next_agents():
            result = await env.step({agent: env.demonstration(agent, rng, skill=skill) for agent in acting})
        wins += result.success
    assert least <= wins / len(tasks) <= most
