"""The learner's log-probabilities and gradient, against one sequence at a time without padding."""

import copy
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from troupe.algorithms.objectives import Cispo, ClippedObjective, Objective, PolicyGradient
from troupe.experience import Sample, TokenBatch
from troupe.models.learning.packing import micro_batches, mini_batches, pack, rows_of
from troupe.models.learning.policy import PolicyModule, keep_float64

from ..conftest import TEMPERATURE, Groups, Tiny, perturb, train_config

DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])


def module(model: Qwen3ForCausalLM, cap: float = 0.0) -> PolicyModule:
    return PolicyModule(model, {"p": train_config(ClippedObjective(importance_cap=cap))})


def gradient_of(model: Qwen3ForCausalLM) -> Tensor:
    """(parameters,) all gradients in a row; they are reset."""
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


def accumulated(model: Qwen3ForCausalLM, batches: list[TokenBatch], shift: float | None, cap: float = 0.0) -> Tensor:
    """The gradient over micro-batches; the update's start lies ``shift`` nats away (None: it is now)."""
    policy = module(model, cap)
    for batch in batches:
        old = None if shift is None else policy("p", batch).detach() + shift * signs(batch)
        policy.training_step("p", batch, old).loss.backward()
    return gradient_of(model)


def signs(batch: TokenBatch) -> Tensor:
    """(B, C): +1 or -1 by token, so that some ratios leave the clip range on either side, whatever the batch."""
    return 1.0 - 2.0 * (batch.targets % 2)


def plain_gradient(
    model: Qwen3ForCausalLM,
    samples: list[Sample],
    plain_logprobs: Callable[..., Tensor],
    shift: float | None,
    cap: float = 0.0,
) -> Tensor:
    """AT-GRPO's objective one sample and one token at a time."""
    total = torch.zeros((), dtype=model.dtype)
    for sample in samples:
        gain = torch.zeros((), dtype=model.dtype)
        for i, logprob in enumerate(plain_logprobs(model, sample, TEMPERATURE)):
            sign = 1 - 2 * (sample.token_ids[i] % 2)
            old = logprob.detach() + (0 if shift is None else shift * sign)
            ratio = (logprob - old).exp()
            term = torch.min(ratio * sample.advantage, ratio.clamp(0.8, 1.2) * sample.advantage)
            if cap:
                term = term * (old - sample.behaviour_logprobs[i]).exp().clamp(max=cap)
            gain = gain + term / len(sample.token_ids)
        total = total - sample.weight * gain
    total.backward()
    return gradient_of(model)


def distance(found: Tensor, expected: Tensor) -> float:
    """Relative to the norm of ``expected``."""
    return ((found - expected).norm() / expected.norm()).item()


def ordered(groups: Groups) -> list[Sample]:
    """The samples in the order of a batch's rows."""
    return [sample for row in rows_of(flat(groups)) for sample in row]


def flat(groups: Groups) -> list[Sample]:
    return [sample for group in groups for sample in group]


@DTYPES
def test_logprobs_are_those_of_a_plain_forward(
    tiny: Callable[..., Qwen3ForCausalLM],
    groups: Callable[..., Groups],
    plain_logprobs: Callable[..., Tensor],
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    model, samples = tiny(dtype), ordered(groups())
    batch = pack(rows_of(samples))
    found = module(model)("p", batch)
    assert found.shape == batch.mask.shape
    assert found.dtype == dtype
    assert not found[~batch.mask].any()
    for row, sample in enumerate(samples):
        expected = plain_logprobs(model, sample, TEMPERATURE)
        assert distance(found[row][batch.mask[row]], expected) <= tolerance


def test_agents_of_one_policy_have_temperatures_of_their_own(
    tiny: Callable[..., Qwen3ForCausalLM], groups: Callable[..., Groups], plain_logprobs: Callable[..., Tensor]
) -> None:
    """Learner, update and reference all take the one at which the agent was sampled."""
    model, temperatures = tiny(torch.float64), {"tool": 0.5, "plan": 1.5}
    told = [replace(sample, agent=("tool", "plan", "")[i % 3]) for i, sample in enumerate(flat(groups()))]
    rows = rows_of(told)
    samples, batch = [sample for row in rows for sample in row], pack(rows)
    config = replace(train_config(ClippedObjective(kl=0.1)), temperatures=temperatures)
    policy = PolicyModule(model, {"p": config})
    for found in (policy("p", batch), policy.reference_logprobs("p", batch)):
        for row, sample in enumerate(samples):
            expected = plain_logprobs(model, sample, temperatures.get(sample.agent, TEMPERATURE))
            assert distance(found[row][batch.mask[row]], expected) <= 1e-9
    with pytest.raises(ValueError, match="temperature above 0, got 0"):
        replace(config, temperatures={"tool": 0.0})


def test_half_precision_logits_are_normalised_in_float32(
    tiny: Callable[..., Qwen3ForCausalLM], groups: Callable[..., Groups]
) -> None:
    found = module(tiny(torch.bfloat16))("p", pack(rows_of(flat(groups()))))
    assert found.dtype == torch.float32


def test_an_empty_completion_disturbs_nothing(tiny: Callable[..., Qwen3ForCausalLM]) -> None:
    spoken = Sample("p", (5, 6, 7), (8, 1), (-1.0, -1.0), 1.0, 0.5)
    silent = Sample("p", (5, 6, 7), (), (), 1.0, 0.5)
    alone = module(tiny(torch.float64))("p", pack([[spoken]]))
    both = module(tiny(torch.float64))("p", pack([[spoken, silent]]))
    assert torch.allclose(both[0], alone[0], atol=1e-12)
    assert not both[1].any()


@DTYPES
@pytest.mark.parametrize("cap", [0.0, 1.5])
@pytest.mark.parametrize("shift", [None, 0.5])
def test_the_gradient_is_the_plain_one(
    tiny: Callable[..., Qwen3ForCausalLM],
    groups: Callable[..., Groups],
    plain_logprobs: Callable[..., Tensor],
    dtype: torch.dtype,
    tolerance: float,
    shift: float | None,
    cap: float,
) -> None:
    model, samples = tiny(dtype), flat(groups())
    expected = plain_gradient(model, samples, plain_logprobs, shift, cap)
    assert distance(accumulated(model, micro_batches(samples, 10_000), shift, cap), expected) <= tolerance


@DTYPES
def test_order_and_micro_batches_never_change_the_gradient(
    tiny: Callable[..., Qwen3ForCausalLM], groups: Callable[..., Groups], dtype: torch.dtype, tolerance: float
) -> None:
    model, samples = tiny(dtype), flat(groups())
    shuffled = samples.copy()
    Random(0).shuffle(shuffled)
    expected = accumulated(model, [pack(rows_of(samples))], 0.5)
    assert expected.norm() > 1e-3
    assert distance(accumulated(model, [pack(rows_of(shuffled))], 0.5), expected) <= tolerance
    for max_tokens in (1, 20, 30):
        batches = micro_batches(shuffled, max_tokens)
        assert len(batches) > 1
        assert distance(accumulated(model, batches, 0.5), expected) <= tolerance


def test_samples_without_advantage_may_be_left_out(
    tiny: Callable[..., Qwen3ForCausalLM], groups: Callable[..., Groups]
) -> None:
    model, samples = tiny(torch.float64), flat(groups())
    kept = sum(len(batch.weights) for batch in micro_batches(samples, 10_000))
    assert kept < len(samples)
    everything = accumulated(model, [pack(rows_of(samples))], 0.5)
    assert distance(accumulated(model, micro_batches(samples, 10_000), 0.5), everything) <= 1e-9


def test_padding_reaches_neither_loss_nor_gradient(
    tiny: Callable[..., Qwen3ForCausalLM], groups: Callable[..., Groups]
) -> None:
    model, samples = tiny(torch.float64), flat(groups())
    batch, policy = pack(rows_of(samples)), module(model)
    # Other padding tokens, more of them, and rubbish in the behaviour log-probabilities there.
    other = pack([*rows_of(samples), [Sample("p", (4,) * 20, (5,), (-1.0,), 0.0, 0.0)]])
    other = replace(other, behaviour_logprobs=torch.where(other.mask, other.behaviour_logprobs, float("nan")))
    losses, gradients = [], []
    for given in (batch, other):
        output = policy.training_step("p", given, None)
        output.loss.backward()
        losses.append(output.loss.item())
        gradients.append(gradient_of(model))
    assert losses[1] == pytest.approx(losses[0], rel=1e-12)
    assert distance(gradients[1], gradients[0]) <= 1e-12


# ---- every objective -------------------------------------------------------------------------------------------------


OBJECTIVES: dict[str, Objective] = {
    "grpo with k3": ClippedObjective(kl=0.3),
    "reinforce++ with k1": ClippedObjective(kl=0.3, kl_estimator="k1", kl_in="reward"),
    "dapo with entropy": ClippedObjective(normalisation="token_mean", clip_high=0.28, entropy=0.2),
    "gspo": ClippedObjective(ratio="sequence", clip=0.05),
    "cispo": Cispo(normalisation="token_mean", importance_cap=1.5, importance_mode="mask"),
    "magrpo": PolicyGradient(normalisation="sequence_sum"),
    "dr. grpo": ClippedObjective(normalisation="constant", length=6),
}


def shifted_gradient(module: PolicyModule, samples: list[Sample], max_tokens: int) -> Tensor:
    """(parameters,) over micro-batches of ``max_tokens``; the update's start lies half a nat away, either way."""
    for batch in micro_batches(samples, max_tokens, every_sample=module.policies["p"].objective.every_sample):
        logprobs = module("p", batch).detach()
        old = logprobs + 0.5 - (batch.targets % 2).to(logprobs.dtype)
        module.training_step("p", batch, old).loss.backward()
    found = torch.cat([p.grad.flatten() for p in module.model.parameters() if p.grad is not None])
    module.zero_grad()
    return found


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=str)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_neither_changes_the_gradient_of_any_objective(
    tiny: Tiny, groups: Callable[..., Groups], name: str, dtype: torch.dtype, tolerance: float
) -> None:
    objective = OBJECTIVES[name]
    module = PolicyModule(tiny(dtype), {"p": train_config(objective)})
    perturb(module.model)
    by_tokens = objective.normalisation == "token_mean"
    (samples,) = mini_batches(groups(), 1, Random(0), by_tokens=by_tokens)
    shuffled = samples.copy()
    Random(1).shuffle(shuffled)
    expected = shifted_gradient(module, samples, 100_000)
    assert expected.norm() > 1e-3
    for max_tokens in (1, 25):
        assert distance(shifted_gradient(module, shuffled, max_tokens), expected) <= tolerance


def test_the_reference_stays_where_it_was_and_costs_nothing_when_off(tiny: Tiny) -> None:
    plain, held = (PolicyModule(tiny(), {"p": train_config(ClippedObjective(kl=kl))}) for kl in (0.0, 0.1))
    assert plain.reference is None
    assert held.reference is not None and not held.train().reference.training  # type: ignore[union-attr]
    assert not any(p.requires_grad for p in held.reference.parameters())
    optimizer = held.configure_optimizers()[0]["optimizer"]
    assert len(optimizer.param_groups[0]["params"]) == len(list(held.model.parameters()))


# ---- norms in float64: as precise as their input, through copies; in other precisions transformers' own --------------


def test_float64_is_kept_and_other_precisions_are_as_before(tiny: Tiny) -> None:
    model = tiny().double()
    norm = model.model.norm
    for module in model.modules():
        vars(module).pop("forward", None)  # the fixture's
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
    x = torch.randn(3, norm.weight.numel(), dtype=torch.float64)
    exact = norm.weight * x / (x.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()
    assert (norm(x) - exact).abs().max() > 1e-9  # what transformers does
    keep_float64(model)
    for each in (norm, copy.deepcopy(model).model.norm):
        assert (each(x) - exact).abs().max() < 1e-14
    other = copy.deepcopy(model).float()
    with torch.no_grad():
        other.model.norm.weight.zero_()
    assert not other.model.norm(x.float()).any() and norm(x).any()  # a copy reads its own weight
    assert torch.equal(norm(x.float()), type(norm).forward(norm, x.float()))
