"""Adapters of several policies on one base: each learns as if it were alone, and nothing else moves."""

import asyncio
import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import lightning as L
import pytest
import torch
from lightning.fabric.plugins.precision.amp import MixedPrecision
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.algorithms.objectives import ClippedObjective
from troupe.experience import Request, Sample, Sampling
from troupe.models.bases.loading import checkpoint_weights, load_adapted, load_model
from troupe.models.learning.adapters import (
    AdapterModule,
    activate,
    attach,
    base_of,
    parameters,
    weights,
    without_peft_warnings,
)
from troupe.models.learning.optimizer_steps import NonFiniteError
from troupe.models.learning.packing import mini_batches
from troupe.models.learning.settings import LoraSettings
from troupe.models.pools.pool import Pool
from troupe.rollout.engines.lora import Adapted
from troupe.rollout.engines.torch.engine import TorchEngine

from ..conftest import PRECISION, Groups, Plain, Tiny, learn, train_config

LORA = {
    "tool": LoraSettings(r=4, alpha=8, targets=["q_proj", "v_proj"]),
    "plan": LoraSettings(r=2, alpha=3, targets="all-linear"),
}
SEEDS = {"tool": 11, "plan": 12}
TEMPERATURE = {"tool": 0.7, "plan": 1.0}
ADAMW = partial(torch.optim.AdamW, betas=(0.9, 0.95), weight_decay=0.1)
OPTIMIZER = {"tool": partial(ADAMW, lr=1e-2), "plan": partial(ADAMW, lr=3e-3, weight_decay=0.3)}
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-6}
PLAIN = {torch.float64: 1e-9, torch.float32: 1e-5}
"""Of whole updates against sums in another order."""


def adapter_pool(
    model: Qwen3ForCausalLM,
    precision: MixedPrecision | None = None,
    base: str = "nowhere",
    **changes: Mapping[str, Any],
) -> Pool:
    """Both policies on ``model``; ``changes`` of their configurations by policy."""
    own = {name: {"optimizer": OPTIMIZER[name], "temperature": TEMPERATURE[name]} for name in LORA}
    configs = {name: train_config(**(own[name] | changes.get(name, {}))) for name in LORA}
    with without_peft_warnings():
        module = AdapterModule(attach(model, base, LORA, SEEDS), configs)
    kind: dict[str, Any] = {"precision": PRECISION[model.dtype]} if precision is None else {"plugins": [precision]}
    return Pool(module, L.Fabric(accelerator="cpu", devices=1, **kind))


def state(ours: Pool) -> dict[str, Tensor]:
    """Copies of the base's weights and of both adapters'."""
    tensors = {f"base/{name}": p for name, p in base_of(ours.module.model).named_parameters()}
    for policy in LORA:
        tensors |= {f"{policy}/{name}": value for name, value in ours.module.weights(policy).items()}
    return {name: value.detach().clone() for name, value in tensors.items()}


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    assert before.keys() == after.keys()
    return {name.partition("/")[0] for name in before if not torch.equal(before[name], after[name])}


def batches_of(groups: Callable[..., Groups], seed: int = 1) -> dict[str, Groups]:
    return {"tool": groups(seed=seed), "plan": groups(seed=seed + 1)}


# ---- learning -------------------------------------------------------------------------------------------------------


def alone(model: Qwen3ForCausalLM, name: str) -> PeftModel:
    """One adapter on ``model``, by peft alone."""
    torch.manual_seed(SEEDS[name])
    settings = LORA[name]
    targets = settings.targets if isinstance(settings.targets, str) else list(settings.targets)
    with without_peft_warnings():
        return get_peft_model(model, LoraConfig(r=settings.r, lora_alpha=settings.alpha, target_modules=targets))


def plain_updates(
    model: PeftModel, name: str, updates: list[Groups], count: int, clip_norm: float, plain_logprobs: Plain
) -> None:
    """AT-GRPO's steps on one adapter, one sample and one token at a time."""
    optimizer = OPTIMIZER[name]([p for p in model.parameters() if p.requires_grad])
    for version, groups in enumerate(updates):
        parts = mini_batches(groups, count, Random(f"0/{name}/{version}"))
        olds = [[plain_logprobs(model, s, TEMPERATURE[name]).detach() for s in part] for part in parts]
        for part, old in zip(parts, olds, strict=True):
            total = torch.zeros((), dtype=old[0].dtype)
            for sample, before in zip(part, old, strict=True):
                ratio = (plain_logprobs(model, sample, TEMPERATURE[name]) - before).exp()
                gain = torch.min(ratio * sample.advantage, ratio.clamp(0.8, 1.2) * sample.advantage)
                total = total - sample.weight * gain.mean()
            optimizer.zero_grad()
            total.backward()
            torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], clip_norm)
            optimizer.step()


@pytest.mark.parametrize(
    ("dtype", "clip_norm"),
    [(torch.float64, 1e9), (torch.float64, 0.05), pytest.param(torch.float32, 1e9, marks=pytest.mark.slow)],
    ids=str,
)
async def test_a_mixed_update_is_each_adapters_own(
    tiny: Tiny, groups: Callable[..., Groups], plain_logprobs: Plain, dtype: torch.dtype, clip_norm: float
) -> None:
    # A is without a gradient at first, since B is 0: hence several updates, of which one takes turns.
    counts = {"tool": 1, "plan": 3}
    changes = {name: {"mini_batches": counts[name], "clip_norm": clip_norm} for name in LORA}
    ours = adapter_pool(tiny(dtype), **changes)
    rounds = [{name: groups(seed=i + 3 * (name == "plan")) for name in LORA} for i in range(3)]
    for batches in rounds:
        stats = await ours.update(batches)
    assert {name: values["optimizer_steps"] for name, values in stats.items()} == counts

    for name in LORA:
        model = alone(tiny(dtype), name)
        origin = torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])
        updates = [batches[name] for batches in rounds]
        plain_updates(model, name, updates, counts[name], clip_norm, plain_logprobs)
        expected = torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])
        found = torch.cat([p.detach().flatten() for p in parameters(ours.module.model, name)])
        assert (found - expected).norm() <= PLAIN[dtype] * (expected - origin).norm()


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)], ids=str)
async def test_policies_that_learn_together_learn_as_if_alone(
    tiny: Tiny, groups: Callable[..., Groups], dtype: torch.dtype
) -> None:
    """To the bit, in whatever order."""
    changes = {name: {"mini_batches": count, "epochs": 2} for name, count in zip(LORA, (2, 3), strict=True)}
    together, apart = adapter_pool(tiny(dtype), **changes), adapter_pool(tiny(dtype), **changes)
    start = state(together)
    for batches in (batches_of(groups), batches_of(groups, seed=3)):
        await together.update(batches)
        for name in reversed(LORA):
            await learn(apart.policies[name], batches[name])
    assert moved(state(together), state(apart)) == set() and moved(start, state(apart)) == set(LORA)


@pytest.mark.parametrize("name", LORA)
async def test_what_does_not_learn_stays_bit_for_bit(tiny: Tiny, groups: Callable[..., Groups], name: str) -> None:
    # Weight decay and the moments of the update before would move a parameter that the optimizer saw.
    ours = adapter_pool(tiny())
    start = state(ours)
    await ours.update(batches_of(groups))
    before = state(ours)
    assert moved(start, before) == {"tool", "plan"}
    for seed in (3, 4):
        await ours.update({name: groups(seed=seed)})
    assert moved(before, state(ours)) == {name}
    assert {policy: handle.version for policy, handle in ours.policies.items()} == {"tool": 1, "plan": 1, name: 3}


async def test_rates_and_schedules_are_each_policys_own(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    falling = partial(torch.optim.lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.5, total_iters=2)
    ours = adapter_pool(tiny(), plan={"scheduler": falling})
    rates = [await ours.update(batches_of(groups)) for _ in range(3)]
    assert [r["tool"]["learning_rate"] for r in rates] == [1e-2] * 3
    assert [r["plan"]["learning_rate"] for r in rates] == pytest.approx([3e-3, 2.25e-3, 1.5e-3])
    optimizers = [policy.learner.optimizer for policy in ours.policies.values()]
    assert [optimizer.param_groups[0]["weight_decay"] for optimizer in optimizers] == [0.1, 0.3]


async def test_the_reference_is_the_base_without_adapters(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    ours = adapter_pool(tiny(), tool={"objective": ClippedObjective(kl=0.1)})
    first, second = [await ours.update(batches_of(groups)) for _ in range(2)]
    assert first["tool"]["reference_kl_nats"] == 0.0
    assert second["tool"]["reference_kl_nats"] > 1e-5
    assert "reference_kl_nats" not in second["plan"]


async def test_a_loss_that_is_not_finite_names_its_policy_and_changes_nothing_of_it(
    tiny: Tiny, groups: Callable[..., Groups]
) -> None:
    ours = adapter_pool(tiny())
    await ours.update(batches_of(groups))
    before = state(ours)
    batches = batches_of(groups)
    batches["plan"][0][0] = replace(batches["plan"][0][0], advantage=float("nan"))
    with pytest.raises(NonFiniteError, match="policy 'plan': the loss is nan"):
        await ours.update(batches)
    assert moved(before, state(ours)) == {"tool"}  # which learnt before
    assert {name: policy.version for name, policy in ours.policies.items()} == {"tool": 2, "plan": 1}
    assert all(p.grad is None for p in ours.module.model.parameters())


async def test_a_loaded_state_goes_on_bit_for_bit(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    falling = partial(torch.optim.lr_scheduler.LinearLR, total_iters=5)
    changes = {name: {"scheduler": falling, "mini_batches": 2} for name in LORA}
    ours, other = adapter_pool(tiny(), **changes), adapter_pool(tiny(), **changes)
    await ours.update(batches_of(groups))
    for name, handle in ours.policies.items():
        other.policies[name].load_state_dict(copy.deepcopy(handle.state_dict()))
    for each in (ours, other):
        for seed in (5, 6):
            await each.update({name: groups(seed=seed) for name in LORA})
    assert moved(state(ours), state(other)) == set()
    with pytest.raises(ValueError, match=r"'plan'.*of another shape: .*lora_A.*\(\(3, 16\) for \(2, 16\)\)"):
        ours.policies["plan"].load_state_dict(ours.policies["tool"].state_dict() | {"model": {**wrong(ours)}})


def wrong(ours: Pool) -> dict[str, Tensor]:
    """The planner's weights with one of the wrong shape."""
    found = weights(ours.module.model, "plan")
    name = next(name for name in found if "lora_A" in name)
    return {**found, name: torch.zeros(3, 16)}


# ---- speaking -------------------------------------------------------------------------------------------------------


def spoken(requests: list[Request], engine: TorchEngine) -> Any:
    async def all_of() -> list[Any]:
        return await asyncio.gather(*(engine.generate(request) for request in requests))

    return all_of()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fused", "own code"])
async def test_the_engine_says_what_the_learner_thinks(
    tiny: Tiny,
    groups: Callable[..., Groups],
    plain_logprobs: Plain,
    tokenizer: PreTrainedTokenizerFast,
    dtype: torch.dtype,
) -> None:
    ours = adapter_pool(tiny(dtype))
    whole = ours.module.model
    base = base_of(whole)
    adapted = {name: Adapted(base, weights(whole, name), LORA[name].scale) for name in LORA}
    engine = TorchEngine({**adapted, "plain": base}, tokenizer)
    requests = [
        Request(name, prompt, 3, Sampling(temperature=TEMPERATURE.get(name, 1.0), max_tokens=8), seed=i, key=(name, i))
        for i, prompt in enumerate([(5, 6, 7), (8,), (9, 4, 4, 11, 12)])
        for name in (*LORA, "plain")
    ]
    untrained = await spoken(requests, engine)
    for _ in range(3):
        await ours.update(batches_of(groups))
    for name, handle in ours.policies.items():
        await engine.load(name, await handle.weights(), handle.version)
    said = await spoken(requests, engine)
    changed = set()
    for request, before, after in zip(requests, untrained, said, strict=True):
        for completion in after:
            sample = Sample("p", request.prompt_ids, completion.token_ids, completion.logprobs, 1.0, 1.0)
            with torch.no_grad():
                if request.policy == "plain":
                    expected = plain_logprobs(tiny(dtype), sample, 1.0)
                else:
                    activate(whole, request.policy)
                    expected = plain_logprobs(whole, sample, TEMPERATURE[request.policy])
            assert (torch.tensor(completion.logprobs) - expected).abs().max() < 1e-4
            assert completion.version == (0 if request.policy == "plain" else 3)
        changed |= {request.policy} if [c.logprobs for c in before] != [c.logprobs for c in after] else set()
    assert changed == {"tool", "plan"}
    with pytest.raises(ValueError, match="policy 'plain': its weights are those of tool, plan too"):
        await engine.load("plain", base.state_dict(), 1)
    await engine.close()


async def test_the_base_is_in_memory_once(tiny: Tiny, tokenizer: PreTrainedTokenizerFast) -> None:
    model = tiny()
    numbers = sum(p.numel() for p in model.parameters())
    ours = adapter_pool(model)
    base = base_of(ours.module.model)
    own = {name: weights(ours.module.model, name) for name in LORA}
    engine = TorchEngine({n: Adapted(base, own[n], LORA[n].scale) for n in LORA}, tokenizer)
    adapters = sum(value.numel() for found in own.values() for value in found.values())
    tensors = [*ours.module.model.parameters(), *(p for d in engine._decoders.values() for p in d.model.parameters())]
    tensors += [t for d in engine._decoders.values() for t in d.adapter._weights.values()]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    assert sum(storages.values()) == 4 * (numbers + 2 * adapters)  # the engine has adapters of its own
    assert len({id(decoder.model) for decoder in engine._decoders.values()}) == 1
    await engine.close()


# ---- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
async def test_an_export_is_what_peft_and_transformers_read(
    tiny: Tiny, groups: Callable[..., Groups], tmp_path: Path
) -> None:
    tiny().save_pretrained(tmp_path / "base")
    ours = adapter_pool(tiny(), base=str(tmp_path / "base"))
    whole = ours.module.model
    for _ in range(2):
        await ours.update(batches_of(groups))
    ids = torch.tensor([[5, 6, 7, 8]])
    for name, handle in ours.policies.items():
        handle.export(tmp_path / name)
        assert sorted(file.name for file in (tmp_path / name).iterdir()) == [
            "adapter_config.json",
            "adapter_model.safetensors",
        ]
        by_peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / name)
        by_transformers = AutoModelForCausalLM.from_pretrained(tmp_path / name)
        with torch.no_grad():
            activate(whole, name)
            expected = whole(ids).logits
            assert torch.equal(by_peft(ids).logits, expected)
            assert torch.equal(by_transformers(ids).logits, expected)
            assert (load_model(str(tmp_path / name))(ids).logits - expected).abs().max() < 1e-4  # merged
            assert (tiny()(ids).logits - expected).abs().max() > 1e-3
        held = checkpoint_weights(tmp_path / name)
        assert held.keys() == weights(whole, name).keys()
        adapted = load_adapted(tmp_path / name, str(tmp_path / "base"))
        assert adapted.scale == LORA[name].scale and adapted.weights.keys() == held.keys()


# ---- optimizers and precisions --------------------------------------------------------------------------------------


async def test_policies_of_one_base_may_have_different_optimizers(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    ours = adapter_pool(tiny(), plan={"optimizer": partial(torch.optim.SGD, lr=0.1)})
    start = state(ours)
    await ours.update(batches_of(groups))
    assert moved(start, state(ours)) == {"tool", "plan"}


@pytest.mark.slow
async def test_scaled_losses_step_the_same_way(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    """Gradients of 16-mixed are scaled, and unscaled before they are clipped: each policy's once."""
    clipped = {name: {"clip_norm": 0.5} for name in LORA}
    exact = adapter_pool(tiny(), **clipped)
    scaled = adapter_pool(tiny(), MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", 1024.0)), **clipped)
    start = state(exact)
    for seed in (1, 3):
        plain, other = [await ours.update(batches_of(groups, seed)) for ours in (exact, scaled)]
    for name in LORA:
        steps = [
            torch.cat([(state(ours)[key] - start[key]).flatten() for key in start if key.startswith(name)])
            for ours in (exact, scaled)
        ]
        assert torch.nn.functional.cosine_similarity(*steps, dim=0) > 0.99
        assert other[name]["grad_norm"] == pytest.approx(plain[name]["grad_norm"], rel=0.02)
