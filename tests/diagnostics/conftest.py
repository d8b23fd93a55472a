"""Episodes and rows of metrics, written by hand."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.diagnostics.alarms import Alarm, State, alarms, check
from troupe.diagnostics.settings import AlarmSettings
from troupe.envs.base import TeamEnv
from troupe.experience import Candidate, Completion, Episode, Node, Sampling, Task
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.sampler import Sampler
from troupe.rollout.scripted import Script, ScriptedEngine

Raised = Callable[..., list[Alarm]]
Play = Callable[..., list[Episode]]


def candidate(
    reward: float = 0.0, *, tokens: int = 2, nats: float = 0.5, advantage: float = 0.0, **more: Any
) -> Candidate:
    """A completion of so many ``tokens``, each with the log-probability -``nats``."""
    finish = more.pop("finish", "stop")
    completion = Completion((5,) * tokens, (-nats,) * tokens, "said", finish, "p", 0)
    return Candidate(completion, 0.0, more.pop("team", reward), reward, advantage=advantage, **more)


def node(agent: str, turn: int, *candidates: Candidate, task: str = "t") -> Node:
    return Node(task, agent, turn, (1, 2), list(candidates))


@pytest.fixture
def raised() -> Raised:
    """``raised(rows, policy_of={}, **settings)``: the alarms of these rows of metrics."""

    def run(
        rows: Sequence[Mapping[str, Any]], policy_of: Mapping[str, str] | None = None, **settings: Any
    ) -> list[Alarm]:
        state: State = {}
        for number, row in enumerate(rows, 1):
            check({"iteration": number, **row}, AlarmSettings(**settings), state)
        return list(alarms(state, AlarmSettings(**settings), policy_of or {}))

    return run


@pytest.fixture
def play(words: PreTrainedTokenizerFast) -> Play:
    """``play(script, world, sampler, tasks)``: the episodes of ``tasks``, or of so many, with scripted agents."""

    async def collect(script: Script, world: TeamEnv, sampler: Sampler, tasks: Sequence[Task] | int) -> list[Episode]:
        client = PolicyClient("p", ScriptedEngine(script, words), words, 512, Sampling(max_tokens=40))
        tasks = world.tasks("train", tasks, 0) if isinstance(tasks, int) else tasks
        results = await sampler.collect(world, tasks, dict.fromkeys(world.agents, client), 0)
        return [episode for episodes in results for episode in episodes]

    return collect
