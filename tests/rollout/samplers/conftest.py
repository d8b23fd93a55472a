"""What tests of several samplers share."""

from collections.abc import Callable, Sequence

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.base import TeamEnv
from troupe.experience import Episode, Sampling, Task
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.sampler import Sampler
from troupe.rollout.scripted import Script, ScriptedEngine

Play = Callable[..., tuple[list[Episode], ScriptedEngine]]


@pytest.fixture
def play(words: PreTrainedTokenizerFast) -> Play:
    """``play(script, world, sampler, tasks=None, seed=0)``: the one episode of each task, and the engine."""

    async def collect(
        script: Script, world: TeamEnv, sampler: Sampler, tasks: Sequence[Task] | None = None, seed: int = 0
    ) -> tuple[list[Episode], ScriptedEngine]:
        engine = ScriptedEngine(script, words)
        client = PolicyClient("p", engine, words, 512, Sampling(max_tokens=40))
        tasks = tasks or world.tasks("train", 1, 0)
        results = await sampler.collect(world, tasks, dict.fromkeys(world.agents, client), seed)
        return [episode for (episode,) in results], engine

    return collect
