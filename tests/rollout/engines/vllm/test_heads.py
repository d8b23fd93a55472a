"""Attention heads of a width that vLLM's kernel for CPUs has no code for: the numbers are those of ``transformers``."""

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from troupe.experience import Request, Sampling
from troupe.rollout.engines.vllm.engine import VllmEngine

from .conftest import NEEDS_VLLM, Build, Logprobs

pytestmark = NEEDS_VLLM
PROMPT = tuple(range(10, 50))  # more than a block: part of it comes from the cache of prefixes


def test_a_width_has_room_in_the_next_that_is_known() -> None:
    from troupe.rollout.engines.vllm.heads import room

    assert [room(width) for width in (1, 24, 32, 33, 128, 129, 512, 513)] == [32, 32, 32, 64, 128, 160, 512, None]


@pytest.mark.asyncio
async def test_logprobs_are_the_models_at_the_start_and_after_an_update(
    build: Build, grown: Build, digits: PreTrainedTokenizerFast, plain_logprobs: Logprobs
) -> None:
    shape = {"head_dim": 24, "num_attention_heads": 4, "num_key_value_heads": 2}
    first = build(**shape)
    second = grown(first, 1)
    engine = VllmEngine({"plan": build(**shape)}, digits, kv_cache_gib=0.05)  # which takes its model apart
    try:
        for version, model in enumerate((first, second)):
            if version:
                measured = await engine.load("plan", model.state_dict(), version)
                assert measured["probe_nats"] < 1e-4
            completions = await engine.generate(
                Request("plan", PROMPT, 4, Sampling(max_tokens=30), version, (version,))
            )
            assert len({completion.token_ids for completion in completions}) == 4
            for completion in completions:
                expected = plain_logprobs(model, PROMPT, completion.token_ids)
                torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0)
    finally:
        await engine.close()
