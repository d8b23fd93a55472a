"""The learner's log-probabilities and gradient, against one sequence at a time without padding."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import pytest
import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from troupe.algorithms.objectives import ClippedObjective
from troupe.experience import Sample, TokenBatch
from troupe.models.packing import micro_batches, pack, rows_of
from troupe.models.policy import PolicyModule, token_logprobs

from .conftest import TEMPERATURE, Groups

DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])


def module(model: Qwen3ForCausalLM, cap: float = 0.0) -> PolicyModule:
    return PolicyModule(
        model,
        ClippedObjective(importance_cap=cap),
        partial(torch.optim.SGD, lr=0.1),
        partial(torch.optim.lr_scheduler.ConstantLR, factor=1.0, total_iters=0),
        TEMPERATURE,
    )


def gradient_of(model: Qwen3ForCausalLM) -> Tensor:
    """(parameters,) all gradients in a row; they are reset."""
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


def accumulated(model: Qwen3ForCausalLM, batches: list[TokenBatch], shift: float | None, cap: float = 0.0) -> Tensor:
    """The gradient over micro-batches; the update's start lies ``shift`` nats away (None: it is now)."""
    policy = module(model, cap)
    for batch in batches:
        old = None if shift is None else policy(batch).detach() + shift * signs(batch)
        policy.training_step(batch, old).loss.backward()
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
    model, samples = tiny(dtype), flat(groups())
    batch = pack(rows_of(samples), pad_id=0)
    found = token_logprobs(model, batch, TEMPERATURE)
    assert found.shape == batch.mask.shape
    assert found.dtype == dtype
    assert not found[~batch.mask].any()
    for row, sample in enumerate(samples):
        expected = plain_logprobs(model, sample, TEMPERATURE)
        assert distance(found[row][batch.mask[row]], expected) <= tolerance


def test_half_precision_logits_are_normalised_in_float32(
    tiny: Callable[..., Qwen3ForCausalLM], groups: Callable[..., Groups]
) -> None:
    found = token_logprobs(tiny(torch.bfloat16), pack(rows_of(flat(groups())), pad_id=0), 1.0)
    assert found.dtype == torch.float32


def test_an_empty_completion_disturbs_nothing(tiny: Callable[..., Qwen3ForCausalLM]) -> None:
    spoken = Sample("p", (5, 6, 7), (8, 1), (-1.0, -1.0), 1.0, 0.5)
    silent = Sample("p", (5, 6, 7), (), (), 1.0, 0.5)
    alone = token_logprobs(tiny(torch.float64), pack([[spoken]], pad_id=0), 1.0)
    both = token_logprobs(tiny(torch.float64), pack([[spoken, silent]], pad_id=0), 1.0)
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
    assert distance(accumulated(model, micro_batches(samples, 10_000, 0), shift, cap), expected) <= tolerance


@DTYPES
def test_order_and_micro_batches_never_change_the_gradient(
    tiny: Callable[..., Qwen3ForCausalLM], groups: Callable[..., Groups], dtype: torch.dtype, tolerance: float
) -> None:
    model, samples = tiny(dtype), flat(groups())
    shuffled = samples.copy()
    Random(0).shuffle(shuffled)
    expected = accumulated(model, [pack(rows_of(samples), 0)], 0.5)
    assert expected.norm() > 1e-3
    assert distance(accumulated(model, [pack(rows_of(shuffled), 0)], 0.5), expected) <= tolerance
    for max_tokens in (1, 20, 30):
        batches = micro_batches(shuffled, max_tokens, 0)
        assert len(batches) > 1
        assert distance(accumulated(model, batches, 0.5), expected) <= tolerance


def test_samples_without_advantage_may_be_left_out(
    tiny: Callable[..., Qwen3ForCausalLM], groups: Callable[..., Groups]
) -> None:
    model, samples = tiny(torch.float64), flat(groups())
    kept = sum(len(batch.weights) for batch in micro_batches(samples, 10_000, 0))
    assert kept < len(samples)
    everything = accumulated(model, [pack(rows_of(samples), 0)], 0.5)
    assert distance(accumulated(model, micro_batches(samples, 10_000, 0), 0.5), everything) <= 1e-9


def test_padding_reaches_neither_loss_nor_gradient(
    tiny: Callable[..., Qwen3ForCausalLM], groups: Callable[..., Groups]
) -> None:
    model, samples = tiny(torch.float64), flat(groups())
    batch, policy = pack(rows_of(samples), pad_id=0), module(model)
    # Other padding tokens, more of them, and rubbish in the behaviour log-probabilities there.
    other = pack([*rows_of(samples), [Sample("p", (4,) * 20, (5,), (-1.0,), 0.0, 0.0)]], pad_id=17)
    other = replace(other, behaviour_logprobs=torch.where(other.mask, other.behaviour_logprobs, float("nan")))
    losses, gradients = [], []
    for given in (batch, other):
        output = policy.training_step(given, None)
        output.loss.backward()
        losses.append(output.loss.item())
        gradients.append(gradient_of(model))
    assert losses[1] == pytest.approx(losses[0], rel=1e-12)
    assert distance(gradients[1], gradients[0]) <= 1e-12


def test_greedy_training_is_refused(tiny: Callable[..., Qwen3ForCausalLM]) -> None:
    optimizer, scheduler = partial(torch.optim.SGD, lr=0.1), partial(torch.optim.lr_scheduler.ConstantLR)
    with pytest.raises(ValueError, match="temperature"):
        PolicyModule(tiny(), ClippedObjective(), optimizer, scheduler, temperature=0.0)
