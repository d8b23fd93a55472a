"""Episodes in which one model, untrained by the team's rewards, speaks for every agent."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

from ..envs.base import TeamEnv
from ..experience import Sampling, Task
from ..rollout.engines.torch.engine import TorchEngine
from ..rollout.policy_client import PolicyClient
from .episodes import EpisodeResult, PolicyActor, evaluate


async def play_base(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    world: TeamEnv,
    tasks: Sequence[Task],
    sampling: Sampling,
    max_batch_rows: int = 256,
) -> list[EpisodeResult]:
    """One episode per task; the caller opens and closes the world.  Raises as :func:`.episodes.evaluate` does."""
    engine = TorchEngine({"base": model.eval()}, tokenizer, max_batch_rows=max_batch_rows)
    client = PolicyClient("base", engine, tokenizer, model.config.max_position_embeddings, sampling)
    try:
        return await evaluate(world, tasks, {agent: PolicyActor(client) for agent in world.agents}, 0)
    finally:
        await engine.close()
