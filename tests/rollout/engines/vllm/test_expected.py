"""What weights an engine is expected to have, and which weights it takes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from troupe.rollout.engines.lora import PREFIX, A, B
from troupe.rollout.engines.vllm.expected import ExpectedWeights, Skeleton, sequences
from troupe.rollout.engines.vllm.settings import VllmSettings

from .conftest import Build, adapted

LAYER = "model.layers.0.self_attn.q_proj"


def test_a_skeleton_runs_on_any_weights_and_holds_none(
    build: Build, grown: Build, plain_logprobs: Callable[..., Tensor]
) -> None:
    model, learner = build(), grown(build(), 1)
    skeleton = Skeleton(model)
    assert sum(parameter.numel() for parameter in model.parameters()) == 0
    ids = tuple(range(4, 20))
    logprobs = skeleton.next_logprobs(skeleton.complete("plan", learner.state_dict()), ids)
    expected = torch.stack([plain_logprobs(learner, ids, [token])[0] for token in range(5)])
    torch.testing.assert_close(logprobs[:5], expected, atol=1e-5, rtol=0)


def test_a_tied_weight_may_be_given_under_either_name(build: Build) -> None:
    weights, skeleton = build().state_dict(), Skeleton(build())
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        one_name = {key: tensor for key, tensor in weights.items() if key != name}
        assert set(skeleton.complete("plan", one_name)) == set(weights)


def test_weights_that_do_not_fit_are_refused_by_name(build: Build) -> None:
    weights, skeleton = build().state_dict(), Skeleton(build())
    wrong = dict(weights) | {"stray": torch.zeros(1), "model.norm.weight": torch.zeros(3)}
    del wrong["model.layers.0.mlp.up_proj.weight"]
    wrong["lm_head.weight"] = weights["lm_head.weight"] + 1
    with pytest.raises(ValueError) as refused:
        skeleton.complete("plan", wrong)
    for part in (
        "policy 'plan'",
        "missing: model.layers.0.mlp.up_proj.weight",
        "unknown: stray",
        "of another shape: model.norm.weight ((3,) for (64,))",
        "tied but different: model.embed_tokens.weight and lm_head.weight",
    ):
        assert part in str(refused.value)


def test_a_merged_adapter_is_the_base_with_its_product_added(build: Build) -> None:
    model = build()
    policy, weights = adapted(model), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    merged = dict(ExpectedWeights({"plan": policy}, VllmSettings(lora="merged")).tensors())
    assert list(merged) == list(weights)
    a, b = policy.weights[f"{PREFIX}{LAYER}{A}"], policy.weights[f"{PREFIX}{LAYER}{B}"]
    torch.testing.assert_close(merged[f"{LAYER}.weight"], weights[f"{LAYER}.weight"] + 0.5 * b @ a)
    changed = {name for name in weights if not torch.equal(merged[name], weights[name])}
    assert changed == {f"{LAYER}.weight", "model.layers.1.mlp.down_proj.weight"}


def test_adapters_have_slots_and_vllm_memory_for_them(build: Build) -> None:
    model = build()
    models = {"base": model, "tool": adapted(model, 4), "plan": adapted(model, 12, seed=1)}
    expected = ExpectedWeights(models, VllmSettings(dtype="bfloat16", block_size=16))
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


def test_an_update_must_be_sent_and_verified_and_the_empty_slot_again(build: Build) -> None:
    model = build()
    models = {"base": model, "tool": adapted(model, 4), "plan": adapted(model, 12, seed=1)}
    expected = ExpectedWeights(models, VllmSettings())
    everything = [expected.model, *expected.adapters]
    for weights in everything:
        weights.sent = weights.verified = True
    for policy in expected.policies.values():
        policy.probe_nats = 0.0
    expected.update("tool", models["tool"].weights, 1)
    assert [weights.sent for weights in everything] == [True, True, False, True]
    assert [weights.verified for weights in everything] == [True, False, False, True]
    assert [policy.probe_nats for policy in expected.policies.values()] == [float("inf"), float("inf"), 0.0]
    expected.mark_unverified(lost=[expected.model])
    assert [weights.sent for weights in everything] == [False, True, False, True]
    assert not any(weights.verified for weights in everything)


def test_probes_are_always_the_same_and_begin_unlike() -> None:
    probes = sequences(60, 33)
    assert probes == sequences(60, 33) and len({ids[:8] for ids in probes}) == len(probes)
