"""A model that no reward has trained: episodes in which it speaks for every agent, and its skill by agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

from ..envs.base import TeamEnv
from ..experience import Sampling, Task
from ..rollout.engines.torch.engine import TorchEngine
from ..rollout.playing import Answer
from ..rollout.policy_client import PolicyClient
from .episodes import Earlier, EpisodeResult, PolicyActor, evaluate

DRAWS = 8
"""Of an expert's messages in a state, where it has several."""


async def play_base(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    world: TeamEnv,
    tasks: Sequence[Task],
    sampling: Sampling,
    max_batch_rows: int = 256,
) -> list[EpisodeResult]:
    """One episode per task; the caller opens and closes the world.  Raises as :func:`.episodes.evaluate` does."""
    async with _client(model, tokenizer, sampling, max_batch_rows) as client:
        return await evaluate(world, tasks, dict.fromkeys(world.agents, PolicyActor(client)), 0)


async def expert_shares(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    world: TeamEnv,
    tasks: Sequence[Task],
    max_tokens: int,
) -> dict[str, float]:
    """By agent, the share of the model's greedy messages that are one of :data:`DRAWS` messages of an expert, in the
    states that experts reach.  The caller opens and closes the world.
    """
    async with _client(model, tokenizer, Sampling(temperature=0.0, max_tokens=max_tokens)) as client:
        actors = {agent: _WatchedExpert(PolicyActor(client)) for agent in world.agents}
        await evaluate(world, tasks, actors, 0)
    return {agent: fmean(actor.matches) for agent, actor in actors.items() if actor.matches}


@dataclass
class _WatchedExpert:
    """Sends an expert's message, and compares the ``actor``'s with it."""

    actor: PolicyActor
    matches: list[bool] = field(default_factory=list)

    async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
        rng = Random(f"{seed}/{task.task_id}/{env.turn}/{agent}")
        experts = [env.demonstration(agent, rng).strip() for _ in range(DRAWS)]
        message = await self.actor.act(env, agent, task, earlier, seed)
        self.matches.append(message.text.strip() in experts)
        return Answer(experts[0])


@asynccontextmanager
async def _client(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerBase, sampling: Sampling, max_batch_rows: int = 256
) -> AsyncIterator[PolicyClient]:
    engine = TorchEngine({"base": model.eval()}, tokenizer, max_batch_rows=max_batch_rows)
    try:
        yield PolicyClient("base", engine, tokenizer, model.config.max_position_embeddings, sampling)
    finally:
        await engine.close()
