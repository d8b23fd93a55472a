"""What every engine on this machine refuses, and the callers that wait for it."""

import asyncio

import pytest
from transformers import GPT2Config, LlamaConfig, OPTConfig, Qwen3Config, Qwen3ForCausalLM

from troupe.experience import Request, Sampling
from troupe.models.bases.tiny import build_tokenizer
from troupe.rollout.engines.base import EngineClosedError
from troupe.rollout.engines.local import LocalEngine, cache_numbers, end_of_sequence, fail, inner_width
from troupe.rollout.engines.lockstep import hold


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    more = {"vocab_size": 20, "num_hidden_layers": 3, "head_dim": 8, "max_position_embeddings": 16}
    return Qwen3ForCausalLM(Qwen3Config(**sizes | more))


def request(policy: str = "plan", *prompt: int) -> Request:
    return Request(policy, prompt or (4, 5), 1, Sampling(max_tokens=8), 0, (1,))


async def test_what_cannot_be_served_is_refused_and_waits_for_nothing(model: Qwen3ForCausalLM) -> None:
    engine = LocalEngine({"plan": model}, lockstep=True)
    for wrong, why in (
        (request("tool"), "no policy 'tool' in this engine; it has plan"),
        (request("plan", *range(9)), "9 tokens and max_tokens = 8 exceed the context of 16"),
        (request("plan", 20), "outside of the vocabulary of 20"),
    ):
        with pytest.raises(ValueError, match=why):
            engine._accept(wrong)
    with hold(), pytest.raises(RuntimeError, match="inside hold"):
        engine._accept(request())
    engine._asleep = True
    with pytest.raises(RuntimeError, match="asleep"):
        engine._accept(request())
    engine._closed = True
    with pytest.raises(EngineClosedError, match=r"generate\(\) after close"):
        engine._accept(request())
    assert not engine._outstanding


async def test_callers_wait_until_each_has_an_answer_or_an_error(model: Qwen3ForCausalLM) -> None:
    engine = LocalEngine({"plan": model}, lockstep=False)
    with hold():  # which is for lockstep
        answers = [engine._accept(request()) for _ in range(3)]
    served = asyncio.create_task(engine._served())
    answers[0].set_result([])
    answers[1].cancel()
    await asyncio.sleep(0)
    assert engine._outstanding == {answers[2]} and not served.done()
    fail(answers, EngineClosedError("the engine was closed"))
    await served
    assert answers[0].result() == [] and answers[1].cancelled()
    with pytest.raises(EngineClosedError):
        answers[2].result()


def test_sizes_and_ends_are_read_from_the_model(model: Qwen3ForCausalLM) -> None:
    assert cache_numbers(model.config) == 2 * 3 * 2 * 8 and cache_numbers(model.config, 32) == 2 * 3 * 2 * 32
    tokenizer = build_tokenizer(["w0"])
    model.generation_config.eos_token_id = [2, 3]
    assert end_of_sequence(model, tokenizer) == {2, 3, tokenizer.eos_token_id}


def test_the_inner_width_has_several_names() -> None:
    configs = [LlamaConfig(intermediate_size=24), OPTConfig(ffn_dim=24), GPT2Config(n_inner=24), GPT2Config(n_embd=6)]
    assert [inner_width(config) for config in configs] == [24] * 4
