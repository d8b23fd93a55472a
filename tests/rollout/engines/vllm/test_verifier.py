"""What the probes let pass and what they find, with ``transformers`` in the engine's place: its answers are those of a
model of its own, in the engine's dtype, of which a fault is planted.  (``test_engine.py`` has vLLM's own.)
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from troupe.rollout.engines.lora import Adapted, Adapter
from troupe.rollout.engines.plain_pass import FACTOR
from troupe.rollout.engines.vllm.digest import WeightsMismatchError
from troupe.rollout.engines.vllm.expected import ExpectedWeights
from troupe.rollout.engines.vllm.server import ProbeResult
from troupe.rollout.engines.vllm.settings import DTYPES, VllmSettings
from troupe.rollout.engines.vllm.verifier import Verifier, difference

from ..torch.conftest import biased
from .conftest import DIGITS, Build, adapted

SIZES = dict(vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, bos_token_id=None, eos_token_id=1, pad_token_id=0,
             initializer_range=0.1)  # fmt: skip


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "qwen2": lambda: biased(**SIZES),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "smollm2": lambda: LlamaForCausalLM(
        LlamaConfig(**SIZES | {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3})
    ),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    torch.manual_seed(0)
    return MODELS[request.param]().eval()


class Speaking:
    """A process that computes with ``model``, and puts the last token ``shift`` positions further."""

    offloaded: frozenset[str] = frozenset()

    def __init__(self, model: PreTrainedModel, dtype: str, shift: int = 0) -> None:
        self.model, self.shift = copy.deepcopy(model), shift
        for parameter in self.model.parameters():
            parameter.data = parameter.data.to(DTYPES[dtype])

    @torch.no_grad()
    async def probe(self, policy: str, sequences: Sequence[Sequence[int]]) -> list[ProbeResult]:
        results = []
        for ids in sequences:
            positions = torch.arange(len(ids))
            positions[-1] += self.shift
            logits = self.model(torch.tensor([ids]), position_ids=positions[None]).logits[0, -1]
            logprobs, tokens = logits.double().log_softmax(-1).topk(20)
            results.append(ProbeResult(dict(zip(tokens.tolist(), logprobs.tolist(), strict=True)), 0))
        return results


async def probed(expected: ExpectedWeights, speaking: Any) -> float:
    return await Verifier(expected)._probe(speaking, expected.policies["plan"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_honest_models_pass_and_a_shifted_position_does_not(model: PreTrainedModel, dtype: str) -> None:
    expected = ExpectedWeights({"plan": model}, VllmSettings(dtype=dtype), DIGITS)
    assert 0 < await probed(expected, Speaking(model, dtype)) < 3 * expected.policies["plan"].rounding
    if not (dtype == "bfloat16" and isinstance(model, Qwen2ForCausalLM)):  # which rounds such biases to whole numbers
        with pytest.raises(WeightsMismatchError, match=rf"'plan', version 0: .* nats .*, on which {dtype} moves the"):
            await probed(expected, Speaking(model, dtype, shift=1))


async def test_one_layer_that_lacks_a_small_update_is_found_in_float32(model: PreTrainedModel) -> None:
    """In bfloat16 most such updates change no weight, and it is the digests that find those that do."""
    expected, learner = ExpectedWeights({"plan": model}, VllmSettings(), DIGITS), copy.deepcopy(model)
    with torch.no_grad():
        for parameter in learner.model.layers[1].parameters():
            parameter += 1e-5 * torch.randn_like(parameter).sign()
    before = copy.deepcopy(model)
    expected.update("plan", learner.state_dict(), 1)
    await probed(expected, Speaking(learner, "float32"))
    with pytest.raises(WeightsMismatchError, match="'plan', version 1: log-probabilities of engine and learner differ"):
        await probed(expected, Speaking(before, "float32"))


async def test_weights_that_round_worse_than_the_first_are_measured_again() -> None:
    torch.manual_seed(0)
    first, later = Qwen2ForCausalLM(Qwen2Config(**SIZES)).eval(), biased(**SIZES).eval()
    expected = ExpectedWeights({"plan": first}, VllmSettings(), DIGITS)
    expected.complete()
    expected.update("plan", later.state_dict(), 1)
    policy = expected.policies["plan"]
    assert policy.rounding < FACTOR * policy.rounding < await probed(expected, Speaking(later, "float32"))
    with pytest.raises(WeightsMismatchError, match="differ"):
        await probed(expected, Speaking(later, "float32", shift=1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_a_stale_adapter_is_found(build: Build, dtype: str) -> None:
    model = build()
    policy = adapted(model)
    expected = ExpectedWeights({"plan": policy}, VllmSettings(dtype=dtype), DIGITS)
    moved = {name: weight + 0.1 * weight.std() * torch.randn_like(weight) for name, weight in policy.weights.items()}
    expected.update("plan", moved, 1)
    for weights, stale in ((moved, False), (policy.weights, True)):
        speaking = Speaking(model, dtype)
        with Adapter("plan", Adapted(speaking.model, weights, policy.scale)).applied():
            if stale:
                with pytest.raises(WeightsMismatchError, match="'plan', version 1"):
                    await probed(expected, speaking)
            else:
                await probed(expected, speaking)


def test_one_wrong_logprob_is_noticed() -> None:
    learner = torch.log_softmax(torch.randn(4, 60, generator=torch.Generator().manual_seed(0)), -1)
    results = [ProbeResult({int(i): float(row[i]) for i in row.topk(5).indices}, 0) for row in learner]
    assert difference(learner, results) == 0
    token = next(iter(results[2].logprobs))
    results[2] = ProbeResult({**results[2].logprobs, token: results[2].logprobs[token] + 0.25}, 0)
    assert difference(learner, results) == pytest.approx(0.25 / 20**0.5, abs=1e-5)
    results[1] = ProbeResult({token: float("nan")}, 0)
    assert difference(learner, results) == float("inf")
