"""Samples of older versions: the importance weights of each version by hand, and what is reported of them."""

import math
from functools import partial
from statistics import fmean

import pytest
import torch

from troupe.algorithms.objectives import ClippedObjective, Objective, PolicyGradient
from troupe.experience import Sample

from ..conftest import TEMPERATURE, Plain, Tiny, full_policy, learn, model_of, weights_of

CAP, RATE = 1.2, 0.1
OBJECTIVES = {
    "at_grpo": ClippedObjective(importance_cap=CAP),
    "magrpo": PolicyGradient(normalisation="sequence_sum", importance_cap=CAP),
    "masked": ClippedObjective(importance_cap=CAP, importance_floor=0.8, importance_mode="mask"),
}


def plain_factor(ratio: float, objective: Objective) -> float:
    if objective.importance_mode == "mask":
        return ratio if objective.importance_floor <= ratio <= CAP else 0.0
    return min(ratio, CAP)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
async def test_the_weights_of_three_versions_by_hand(tiny: Tiny, plain_logprobs: Plain, objective: Objective) -> None:
    """A policy is updated twice; then it learns from what each of its versions sampled."""
    ours = full_policy(tiny(torch.float64), objective=objective, optimizer=partial(torch.optim.SGD, lr=RATE))
    model, samples = model_of(ours), []
    for version in range(3):
        for index in range(4 if version == 2 else 2):  # eight in all, so that the weights sum to 1
            said = Sample("p", (5, version), (7, 9 + index, 1), (0.0,) * 3, (-1.0) ** index, 1 / 8, version=version)
            logprobs = plain_logprobs(model, said, TEMPERATURE).detach().float().tolist()  # as a TokenBatch holds them
            samples.append(Sample(**{**vars(said), "behaviour_logprobs": tuple(logprobs)}))
        if version < 2:
            await learn(ours, [samples[-2:]])  # whose weights are made to sum to 1
    assert ours.version == 2

    start, factors = weights_of(model), []
    for parameter in model.parameters():
        parameter.grad = None
    loss = 0.0
    for sample in samples:
        logprobs = plain_logprobs(model, sample, TEMPERATURE)
        behaviour = torch.tensor(sample.behaviour_logprobs, dtype=torch.float64)
        ratios = (logprobs.detach() - behaviour).exp().tolist()
        factors.append([plain_factor(ratio, objective) for ratio in ratios])
        # The gradient of min(rho A, clip(rho) A) at rho = 1 is that of A log pi.
        gains = torch.tensor(factors[-1], dtype=torch.float64) * logprobs * sample.advantage
        loss = loss - sample.weight * (gains.sum() if objective.normalisation == "sequence_sum" else gains.mean())
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    # Of the present version 1, of older ones not; some beyond the cap, and all to within what float32 leaves of 1.
    assert [factor for own in factors[4:] for factor in own] == pytest.approx([1.0] * 12, abs=1e-6)
    corrected = [factor in (0.0, CAP) for own in factors[:4] for factor in own]
    assert any(corrected) and not all(corrected)

    for parameter in model.parameters():
        parameter.grad = None
    stats = await learn(ours, [samples])
    step = (start - weights_of(model)) / RATE
    assert torch.allclose(step, gradient, rtol=1e-9, atol=1e-12)

    assert (stats["staleness_mean"], stats["staleness_max"]) == (0.75, 2.0)
    beyond = [factor in (0.0, CAP) for each in factors[:4] for factor in each]
    assert stats["stale_corrected_share"] == pytest.approx(fmean(beyond))
    assert stats["stale_samples"] == 4 and stats["stale_ess_ratio"] < 1
    # Of what the present weights have sampled alone.
    assert stats["mismatch//turn0/samples"] == 4 and stats["mismatch//turn0/max_abs_nats"] < 1e-6


async def test_what_no_step_learns_from_is_counted_too(tiny: Tiny, plain_logprobs: Plain) -> None:
    model = tiny(torch.float64)
    said = Sample("p", (5, 6), (7, 1), (0.0, 0.0), 0.0, 0.5, version=0)
    first, second = plain_logprobs(model, said, TEMPERATURE).tolist()
    said = Sample(**{**vars(said), "behaviour_logprobs": (first - 0.5, second)})
    ours = full_policy(model)
    ours.learner.version = 3
    stats = await learn(ours, [[said, said]])
    assert stats["stale_mean_abs_nats"] == pytest.approx(0.25, abs=1e-6)
    assert stats["stale_k3_nats"] == pytest.approx((math.exp(0.5) - 1.5) / 2, abs=1e-6)
    assert not any(key.startswith("mismatch/") for key in stats)


async def test_what_several_versions_sampled_is_as_old_as_its_oldest(tiny: Tiny) -> None:
    """It says nothing of the engine, even where most of it is of the present version: its cache is older."""
    own = full_policy(tiny())
    own.learner.version = 2
    said = [Sample("p", (5, 6), (7, 1), (-1.0, -1.0), a, 0.5, version=1, mixed_versions=a > 0) for a in (1.0, -1.0)]
    stats = await learn(own, [said])
    assert stats["staleness_mean"] == stats["staleness_max"] == 1
    assert (stats["stale_samples"], stats["mixed_version_samples"]) == (2, 1)
    assert not any(key.startswith("mismatch/") for key in stats)


async def test_on_policy_there_is_nothing_to_report(tiny: Tiny) -> None:
    samples = [Sample("p", (5, 6), (7, 1), (-1.0, -1.0), a, 0.5, version=v) for a, v in ((1.0, 0), (-1.0, None))]
    stats = await learn(full_policy(tiny()), [samples])
    assert (stats["staleness_mean"], stats["staleness_max"]) == (0, 0)
    assert not any(key.startswith(("stale_", "mixed_")) for key in stats)


async def test_a_sample_of_a_version_to_come_is_refused(tiny: Tiny) -> None:
    with pytest.raises(ValueError, match="policy 'p' has version 0, and a sample the later one 1"):
        await learn(full_policy(tiny()), [[Sample("p", (5, 6), (7, 1), (-1.0, -1.0), 1.0, 0.5, version=1)]])
