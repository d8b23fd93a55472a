"""What weights an engine is expected to have, and which weights it takes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from troupe.rollout.engines.lora import PREFIX, A, Adapted, Adapter, B
from troupe.rollout.engines.vllm.digest import digests
from troupe.rollout.engines.vllm.expected import ExpectedWeights
from troupe.rollout.engines.vllm.settings import VllmSettings

from .conftest import DIGITS, Build, adapted

LAYER = "model.layers.0.self_attn.q_proj"


def test_new_weights_are_computed_with_and_never_copied(
    build: Build, grown: Build, plain_logprobs: Callable[..., Tensor]
) -> None:
    expected, learner = ExpectedWeights({"plan": build()}, VllmSettings(block_size=8), DIGITS), grown(build(), 1)
    weights = learner.state_dict()
    expected.update("plan", weights, 1)
    assert {name: tensor.data_ptr() for name, tensor in expected.architecture.state_dict().items()} == {
        name: tensor.data_ptr() for name, tensor in weights.items()
    }
    for ids, row in zip(expected.sequences, expected.policies["plan"].logprobs, strict=True):
        logprobs = torch.stack([plain_logprobs(learner, ids, [token])[0] for token in range(5)])
        torch.testing.assert_close(row[:5].float(), logprobs, atol=1e-5, rtol=0)


def test_a_tied_weight_may_be_given_under_either_name(build: Build, grown: Build) -> None:
    expected = ExpectedWeights({"plan": build()}, VllmSettings(), DIGITS)
    for version, name in enumerate(("lm_head.weight", "model.embed_tokens.weight"), 1):
        weights = grown(build(), version).state_dict()
        expected.update("plan", {key: tensor for key, tensor in weights.items() if key != name}, version)
        tensors = dict(expected.tensors())
        assert all(torch.equal(tensors[key], weights[key]) for key in tensors)
        assert set(weights) - set(tensors) == {"lm_head.weight"} == set(weights) - set(dict(expected.source))
        assert expected.model.digests == digests(weights.items(), torch.float32)


def test_weights_that_do_not_fit_are_refused_by_name(build: Build) -> None:
    expected, weights = ExpectedWeights({"plan": build()}, VllmSettings(), DIGITS), build().state_dict()
    before, digests_before = dict(expected.tensors()), expected.model.digests
    wrong = dict(weights) | {"stray": torch.zeros(1), "model.norm.weight": torch.zeros(3)}
    del wrong["model.layers.0.mlp.up_proj.weight"]
    wrong["lm_head.weight"] = weights["lm_head.weight"] + 1
    with pytest.raises(ValueError) as refused:
        expected.update("plan", wrong, 1)
    for part in (
        "policy 'plan'",
        "missing: model.layers.0.mlp.up_proj.weight",
        "unknown: stray",
        "of another shape: model.norm.weight ((3,) for (64,))",
        "tied but different: model.embed_tokens.weight and lm_head.weight",
    ):
        assert part in str(refused.value)
    assert expected.policies["plan"].version == 0 and expected.model.digests is digests_before
    assert all(torch.equal(tensor, before[name]) for name, tensor in expected.tensors())


def test_a_merged_adapter_is_the_base_with_its_product_added(build: Build) -> None:
    model = build()
    policy, weights = adapted(model), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    merged = dict(ExpectedWeights({"plan": policy}, VllmSettings(lora="merged"), DIGITS).tensors())
    assert list(merged) == [name for name in weights if name != "lm_head.weight"]
    a, b = policy.weights[f"{PREFIX}{LAYER}{A}"], policy.weights[f"{PREFIX}{LAYER}{B}"]
    torch.testing.assert_close(merged[f"{LAYER}.weight"], weights[f"{LAYER}.weight"] + 0.5 * b @ a)
    changed = {name for name in merged if not torch.equal(merged[name], weights[name])}
    assert changed == {f"{LAYER}.weight", "model.layers.1.mlp.down_proj.weight"}


def test_adapters_have_slots_and_vllm_memory_for_them(build: Build) -> None:
    model = build()
    models = {"base": model, "tool": adapted(model, 4), "plan": adapted(model, 12, seed=1)}
    expected = ExpectedWeights(models, VllmSettings(dtype="bfloat16", block_size=16), DIGITS)
    assert [(each.label, each.slot, each.rank) for each in expected.adapters] == [
        ("base", 0, 0),
        ("tool", 1, 4),
        ("plan", 2, 12),
    ]
    assert expected.lora_arguments == {
        "enable_lora": True,
        "lora_target_modules": ["down_proj", "q_proj"],
        "max_loras": 3,
        "max_cpu_loras": 3,
        "max_lora_rank": 16,
    }
    name, (_, tool, _) = f"{PREFIX}{LAYER}{B}", expected.adapters
    assert torch.equal(tool.tensors[name], (0.5 * models["tool"].weights[name]).bfloat16())
    with pytest.raises(ValueError, match="policy 'base': its weights are those of tool, plan too"):
        expected.update("base", build().state_dict(), 1)
    with pytest.raises(ValueError, match=rf"policy 'tool'.*missing: {name}"):
        expected.update("tool", {k: v for k, v in models["tool"].weights.items() if k != name}, 1)
    assert expected.policies["tool"].version == 0
    rows = [expected.policies[policy].logprobs for policy in models]
    assert not torch.allclose(rows[0], rows[1]) and not torch.allclose(rows[1], rows[2])


def test_an_update_makes_new_sets_of_what_must_be_verified_and_of_the_empty_slot(build: Build) -> None:
    model = build()
    models = {"base": model, "tool": adapted(model, 4), "plan": adapted(model, 12, seed=1)}
    expected = ExpectedWeights(models, VllmSettings(), DIGITS)
    sets, policies = [expected.model, *expected.adapters], dict(expected.policies)
    expected.update("tool", models["tool"].weights, 1)
    after = [expected.model, *expected.adapters]
    assert [new is old for new, old in zip(after, sets, strict=True)] == [True, False, False, True]
    assert [expected.policies[name] is policy for name, policy in policies.items()] == [False, False, True]
    assert [policy.version for policy in expected.policies.values()] == [0, 1, 0]


def test_probes_are_always_the_same_and_begin_unlike(build: Build) -> None:
    probes, again = (ExpectedWeights({"plan": build()}, VllmSettings(), DIGITS).sequences for _ in range(2))
    assert probes == again and len({ids[:8] for ids in probes}) == len(probes)
    prompt = tuple(range(20, 50))
    asked = ExpectedWeights({"plan": build()}, VllmSettings(), DIGITS, [prompt, prompt]).sequences
    assert asked[0][:60] == prompt * 2 and [len(ids) for ids in asked] == [65, 32, 16, 8]


@pytest.mark.parametrize("lora", ["adapter", "merged"])
def test_the_plain_pass_has_the_weights_that_are_sent(build: Build, lora: str) -> None:
    """In bfloat16 of a learner in float32: rounded as they are for the engine, an adapter's and merged ones too."""
    model = build()
    expected = ExpectedWeights({"plan": adapted(model)}, VllmSettings(dtype="bfloat16", lora=lora), DIGITS)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    sent = build()
    sent.load_state_dict({name: tensor.bfloat16().float() for name, tensor in expected.tensors()}, strict=False)
    adapter = expected.policies["plan"].adapter
    alone = {name: tensor.float() for name, tensor in adapter.tensors.items()} if adapter else {}
    with Adapter("plan", Adapted(sent, alone, 1.0)).applied(), torch.no_grad():
        rows = [sent(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1) for ids in expected.sequences]
    policy = expected.policies["plan"]
    torch.testing.assert_close(policy.logprobs, torch.stack(rows), atol=1e-4, rtol=0)
    assert 1e-3 < policy.rounding < 1
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_a_base_is_read_once_for_all_its_adapters_and_an_update_once(build: Build) -> None:
    """Three passes, of which two measure rounding, as long as no adapter has learnt; none before they are needed."""
    model, passes = build(), []
    model.register_forward_hook(lambda *_: passes.append(1))
    learnt = {name: adapted(model, seed=seed).weights for seed, name in enumerate(("tool", "plan"))}
    models = {
        name: Adapted(model, {key: torch.zeros_like(w) if key.endswith(B) else w for key, w in weights.items()}, 0.5)
        for name, weights in learnt.items()
    }
    expected = ExpectedWeights(models | {"base": model}, VllmSettings(), DIGITS)
    assert not passes
    expected.complete()
    assert len(passes) == 3
    before = expected.policies["plan"].logprobs
    assert expected.policies["tool"].logprobs is expected.policies["base"].logprobs is before
    for version, (name, weights) in enumerate(learnt.items(), 1):
        expected.update(name, weights, version)
        assert len(passes) == 3 + version
        assert not torch.allclose(expected.policies[name].logprobs, before)


def test_passages_of_all_lengths_are_read_as_if_alone(build: Build) -> None:
    expected = ExpectedWeights({"plan": build()}, VllmSettings(), DIGITS)
    with torch.no_grad():
        alone = [build()(torch.tensor([ids])).logits[0].double().log_softmax(-1) for ids in expected.sequences]
    for one, other in zip(alone, expected._plain("plan", torch.float64), strict=True):
        torch.testing.assert_close(other, one, atol=1e-4, rtol=0)
