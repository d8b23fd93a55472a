"""Updates whose loss needs more than the chosen tokens' log-probabilities: the reference, the entropy, every sample."""

from collections.abc import Callable
from random import Random
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor

from troupe.algorithms.objectives import Cispo, ClippedObjective, Objective, PolicyGradient
from troupe.experience import Sample
from troupe.models.packing import micro_batches, mini_batches, pack, rows_of
from troupe.models.policy import PolicyModule
from troupe.models.pool import LocalPool

from .conftest import CONSTANT, SGD, TEMPERATURE, Groups, Tiny

OBJECTIVES: dict[str, Objective] = {
    "grpo with k3": ClippedObjective(kl=0.3),
    "reinforce++ with k1": ClippedObjective(kl=0.3, kl_estimator="k1", kl_in="reward"),
    "dapo with entropy": ClippedObjective(normalisation="token_mean", clip_high=0.28, entropy=0.2),
    "gspo": ClippedObjective(ratio="sequence", clip=0.05),
    "cispo": Cispo(normalisation="token_mean", importance_cap=1.5, importance_mode="mask"),
    "magrpo": PolicyGradient(normalisation="sequence_sum"),
    "dr. grpo": ClippedObjective(normalisation="constant", length=6),
}


def moved(module: PolicyModule) -> PolicyModule:
    """Away from its reference."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    return module


def gradient(module: PolicyModule, samples: list[Sample], max_tokens: int) -> Tensor:
    """(parameters,) over micro-batches of ``max_tokens``; the update's start lies half a nat away, either way."""
    for batch in micro_batches(samples, max_tokens, 0, every_sample=module.objective.every_sample):
        old = module(batch).detach() + 0.5 - (batch.targets % 2).to(module(batch).dtype)
        module.training_step(batch, old).loss.backward()
    found = torch.cat([p.grad.flatten() for p in module.model.parameters() if p.grad is not None])
    module.zero_grad()
    return found


def tokens_of(groups: Groups) -> int:
    return sum(len(sample.token_ids) for group in groups for sample in group)


def distance(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=str)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_order_and_micro_batches_never_change_the_gradient(
    tiny: Tiny, groups: Callable[..., Groups], name: str, dtype: torch.dtype, tolerance: float
) -> None:
    objective = OBJECTIVES[name]
    module = moved(PolicyModule(tiny(dtype), objective, SGD, CONSTANT, TEMPERATURE))
    by_tokens = objective.normalisation == "token_mean"
    (samples,) = mini_batches(groups(), 1, Random(0), by_tokens=by_tokens)
    shuffled = samples.copy()
    Random(1).shuffle(shuffled)
    expected = gradient(module, samples, 100_000)
    assert expected.norm() > 1e-3
    for max_tokens in (1, 25):
        assert distance(gradient(module, shuffled, max_tokens), expected) <= tolerance


async def test_one_step_with_kl_and_entropy_written_plainly(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    """Every token of the mini-batch weighs the same; the learner stands away from its reference."""
    dtype = torch.float64
    given = next(found for seed in range(99) if tokens_of(found := groups(seed=seed)) == 64)  # 1 / 64 is exact
    objective = ClippedObjective(normalisation="token_mean", kl=0.3, entropy=0.2)
    module = PolicyModule(tiny(dtype), objective, SGD, CONSTANT, TEMPERATURE)
    ours = LocalPool("p", moved(module), fabric(), pad_id=0, max_tokens=40, clip_norm=1e9)
    stats = await ours.update(given)

    model = moved(PolicyModule(tiny(dtype), ClippedObjective(), SGD, CONSTANT, TEMPERATURE)).model
    reference, samples, tokens = tiny(dtype), [sample for group in given for sample in group], tokens_of(given)
    loss, kl, entropy = torch.zeros((), dtype=dtype), 0.0, 0.0
    for sample in samples:  # those with advantage 0 too
        ids = torch.tensor([[*sample.prompt_ids, *sample.token_ids]])
        start = len(sample.prompt_ids)
        now, before = (
            (m(input_ids=ids).logits[0, start - 1 : -1] / TEMPERATURE).log_softmax(-1) for m in (model, reference)
        )
        for i, token in enumerate(sample.token_ids):
            d = now[i, token] - before[i, token].detach()
            k3, h = (-d).exp() - 1 + d, -(now[i].exp() * now[i]).sum()
            gain = sample.advantage * (now[i, token] - now[i, token].detach()).exp() - 0.3 * k3 + 0.2 * h
            loss = loss - gain / tokens
            kl, entropy = kl + k3.item() / tokens, entropy + h.item() / tokens
    loss.backward()
    for (name, found), parameter in zip(ours.module.model.named_parameters(), model.parameters(), strict=True):
        assert (found - (parameter - 0.5 * parameter.grad)).norm() <= 1e-9 * (1 + parameter.norm()), name
    assert stats["reference_kl_nats"] == pytest.approx(kl, rel=1e-6)
    assert stats["entropy_nats"] == pytest.approx(entropy, rel=1e-6)


async def test_one_step_of_magrpo_written_plainly(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    """The mean over candidates and nodes of A times the sum of log-probabilities at the sampling temperature."""
    objective = PolicyGradient(normalisation="sequence_sum")
    ours = PolicyModule(tiny(torch.float64), objective, SGD, CONSTANT, TEMPERATURE)
    pool = LocalPool("p", ours, fabric(), pad_id=0, max_tokens=40, clip_norm=1e9)
    given, model = groups(), tiny(torch.float64)
    await pool.update(given)
    samples = [sample for group in given for sample in group]
    loss = torch.zeros((), dtype=torch.float64)
    for sample in samples:
        ids, start = torch.tensor([[*sample.prompt_ids, *sample.token_ids]]), len(sample.prompt_ids)
        scores = (model(input_ids=ids).logits[0, start - 1 : -1] / TEMPERATURE).log_softmax(-1)
        loss = loss - sample.advantage * sum(scores[i, t] for i, t in enumerate(sample.token_ids)) / len(samples)
    loss.backward()
    for (name, found), parameter in zip(pool.module.model.named_parameters(), model.parameters(), strict=True):
        assert (found - (parameter - 0.5 * parameter.grad)).norm() <= 1e-9 * (1 + parameter.norm()), name


def fabric() -> L.Fabric:
    return L.Fabric(accelerator="cpu", devices=1, precision="64-true")


def test_the_reference_stays_where_it_was_and_costs_nothing_when_off(tiny: Tiny) -> None:
    plain, held = (PolicyModule(tiny(), ClippedObjective(kl=kl), SGD, CONSTANT) for kl in (0.0, 0.1))
    assert plain.reference is None
    assert held.reference is not None and not held.train().reference.training  # type: ignore[union-attr]
    assert not any(p.requires_grad for p in held.reference.parameters())
    optimizer = held.configure_optimizers()["optimizer"]
    assert len(optimizer.param_groups[0]["params"]) == len(list(held.model.parameters()))


async def test_the_statistics_of_what_is_off_are_left_out(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    module = PolicyModule(tiny(torch.float64), ClippedObjective(), SGD, CONSTANT)
    stats = await LocalPool("p", module, fabric(), pad_id=0).update(groups())
    assert not {"reference_kl_nats", "entropy_nats"} & stats.keys()


def samples_of(*advantages: float) -> Groups:
    return [[Sample("p", (5, i), (6, 1), (-1.0, -1.0), a, 1 / len(advantages))] for i, a in enumerate(advantages, 4)]


@pytest.mark.parametrize(("settings", "factor"), [({}, 0.5), ({"live_groups_only": True}, 1.0)], ids=str)
async def test_dead_groups_count_in_the_mean_unless_left_out(
    tiny: Tiny, settings: dict[str, Any], factor: float
) -> None:
    module = PolicyModule(tiny(torch.float64), ClippedObjective(), SGD, CONSTANT)
    ours = LocalPool("p", module, fabric(), pad_id=0, **settings)
    stats = await ours.update(samples_of(2.0, 0.0))
    assert stats["loss"] == pytest.approx(-2.0 * factor, abs=1e-12)
    assert stats["live_groups"] == 0.5  # of those that came


def test_samples_without_advantage_are_kept_where_they_matter() -> None:
    given = [sample for group in samples_of(2.0, 0.0) for sample in group]
    assert [len(b.weights) for b in micro_batches(given, 100, 0)] == [1]
    assert [len(b.weights) for b in micro_batches(given, 100, 0, every_sample=True)] == [2]


def test_weights_by_tokens() -> None:
    group = [Sample("p", (4,), (5,) * n, (-1.0,) * n, 1.0, weight=0.5) for n in (1, 3)]
    ((one, other),) = mini_batches([group], 1, Random(0), by_tokens=True)
    assert (one.weight, other.weight) == (0.25, 0.75)
    assert len(pack(rows_of([one, other]), 0).weights) == 2
