"""The engine's adapters: what is added to which layer, and weights that do not belong."""

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.models.bases.tiny import build_model
from troupe.rollout.engines.lora import Adapted, Adapter
from troupe.rollout.engines.torch.engine import TorchEngine

LAYER = "base_model.model.model.layers.0."


@pytest.fixture(scope="module")
def model(words: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    return build_model(words, hidden=16, layers=1, heads=2, seed=0)


def adapter(*modules: str, r: int = 2) -> dict[str, Tensor]:
    """Random weights on layers of a model of width 16."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"q_proj": (16, 16), "k_proj": (8, 16), "v_proj": (8, 16), "gate_proj": (48, 16), "up_proj": (48, 16)}
    weights = {}
    for module in modules:
        out, read = shapes[module.rpartition(".")[2]]
        weights[f"{LAYER}{module}.lora_A.weight"] = torch.randn(r, read, generator=generator)
        weights[f"{LAYER}{module}.lora_B.weight"] = torch.randn(out, r, generator=generator)
    return weights


def test_additions_side_by_side(model: Qwen3ForCausalLM) -> None:
    weights = adapter("self_attn.q_proj", "self_attn.v_proj")
    ours, x = Adapter("p", Adapted(model, weights, 1.5)), torch.randn(3, 16)
    paths = [f"model.layers.0.self_attn.{name}_proj" for name in "qkv"]
    addition = ours.joined(paths, [16, 8, 8])
    assert addition is not None
    expected = []
    for name, width in (("q", 16), ("k", 8), ("v", 8)):
        a, b = (weights.get(f"{LAYER}self_attn.{name}_proj.lora_{end}.weight") for end in "AB")
        expected.append(torch.zeros(3, width) if a is None or b is None else 1.5 * x @ a.T @ b.T)
    torch.testing.assert_close(addition(x), torch.cat(expected, -1))
    assert ours.joined([f"model.layers.0.mlp.{name}_proj" for name in ("gate", "up")], [48, 48]) is None
    assert ours.of("model.layers.0.self_attn.o_proj") is None


def test_within_it_is_applied_and_after_it_is_gone(model: Qwen3ForCausalLM) -> None:
    ours, ids = Adapter("p", Adapted(model, adapter("mlp.gate_proj"), 1.0)), torch.tensor([[4, 5, 6]])
    with torch.no_grad():
        before = model(ids).logits
        with ours.applied():
            assert not torch.equal(model(ids).logits, before)
        assert torch.equal(model(ids).logits, before)


def test_the_engines_adapter_is_its_own_copy(model: Qwen3ForCausalLM) -> None:
    weights = adapter("self_attn.q_proj")
    ours = Adapter("p", Adapted(model, weights, 1.0))
    low = ours.of("model.layers.0.self_attn.q_proj")
    assert low is not None
    before = low.down.clone()
    for tensor in weights.values():
        tensor.zero_()
    assert torch.equal(low.down, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"{LAYER}self_attn.x_proj.lora_A.weight": torch.zeros(2, 16)}, "policy 'p': .*x_proj.* no linear layer"),
        ({"q_proj.lora_A.weight": torch.zeros(2, 16)}, "policy 'p': .*q_proj.* no linear layer"),
        ({f"{LAYER}self_attn.q_proj.lora_A.weight": torch.zeros(2, 16)}, "policy 'p': .*lora_B.* no counterpart"),
        ({f"{LAYER}self_attn.q_proj.bias": torch.zeros(16)}, "policy 'p': .*bias has no counterpart"),
    ],
)
def test_weights_of_no_layer_are_named(model: Qwen3ForCausalLM, change: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Adapter("p", Adapted(model, adapter("self_attn.v_proj") | change, 1.0))


async def test_weights_that_do_not_fit_change_nothing(model: Qwen3ForCausalLM, words: PreTrainedTokenizerFast) -> None:
    weights = adapter("self_attn.q_proj", "mlp.gate_proj")
    engine = TorchEngine({"p": Adapted(model, weights, 1.0)}, words)
    with pytest.raises(ValueError, match=r"policy 'p'.*missing: .*gate_proj.*unknown: .*v_proj"):
        await engine.load("p", adapter("self_attn.q_proj", "self_attn.v_proj"), 1)
    low = engine._decoders["p"].adapter.of("model.layers.0.mlp.gate_proj")  # type: ignore[union-attr]
    assert low is not None
    assert torch.equal(low.down, weights[f"{LAYER}mlp.gate_proj.lora_A.weight"])
    assert engine._decoders["p"].version == 0
    await engine.close()
