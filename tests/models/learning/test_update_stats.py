"""What an update reports: by hand, over all samples or a share of those that no step learns from, and warnings."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from troupe.algorithms.objectives import ClippedObjective
from troupe.experience import Sample

from ..conftest import TEMPERATURE, Groups, Plain, Tiny, full_policy, learn

PLACE = "mismatch/plan/turn3"


async def test_statistics_by_hand(tiny: Tiny, plain_logprobs: Plain) -> None:
    model = tiny(torch.float64)
    samples = [
        Sample("p", (5, 6), (7, 1), (-2.0, -3.0), advantage=1.0, weight=0.25),
        Sample("p", (5, 6), (8,), (-1.0,), advantage=-0.5, weight=0.25),
        Sample("p", (9,), (4,), (-1.0,), advantage=0.0, weight=0.25),
        Sample("p", (9,), (4,), (-1.0,), advantage=0.0, weight=0.25),
    ]
    before = [plain_logprobs(model, s, TEMPERATURE).tolist() for s in samples]
    scheduler = partial(torch.optim.lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.5, total_iters=2)
    ours = full_policy(model, scheduler=scheduler)
    stats = await learn(ours, [samples[:2], samples[2:]])
    # Ratio 1: the loss is minus the weighted advantages.
    assert stats["loss"] == pytest.approx(-(0.25 * 1.0 + 0.25 * -0.5), abs=1e-12)
    # k3 of learner over behaviour, over the three tokens that have an advantage.
    drift = [before[0][0] + 2, before[0][1] + 3, before[1][0] + 1]
    k3 = sum(torch.tensor(d).double().exp().item() - 1 - d for d in drift) / 3
    assert stats["behaviour_kl_nats"] == pytest.approx(k3, rel=1e-6)
    assert (stats["samples"], stats["live_groups"]) == (4, 0.5)
    # The rate is the one that the step was taken with; the schedule advances once an update.
    assert stats["learning_rate"] == 0.5
    assert (await learn(ours, [samples[:2]]))["learning_rate"] == 0.375
    assert (await learn(ours, [samples[:2]]))["learning_rate"] == 0.25


async def test_the_statistics_of_what_is_off_are_left_out(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    stats = await learn(full_policy(tiny(torch.float64)), groups())
    assert not {"reference_kl_nats", "entropy_nats"} & stats.keys()


def samples_of(*advantages: float) -> Groups:
    return [[Sample("p", (5, i), (6, 1), (-1.0, -1.0), a, 1 / len(advantages))] for i, a in enumerate(advantages, 4)]


@pytest.mark.parametrize(("settings", "factor"), [({}, 0.5), ({"live_groups_only": True}, 1.0)], ids=str)
async def test_dead_groups_count_in_the_mean_unless_left_out(
    tiny: Tiny, settings: dict[str, Any], factor: float
) -> None:
    stats = await learn(full_policy(tiny(torch.float64), **settings), samples_of(2.0, 0.0))
    assert stats["loss"] == pytest.approx(-2.0 * factor, abs=1e-12)
    assert stats["live_groups"] == 0.5  # of those that came


async def test_the_ledger_is_of_the_start_of_the_update(tiny: Tiny, plain_logprobs: Plain) -> None:
    """The learner of a later epoch has moved."""
    model = tiny()
    said = [Sample("p", (5, 6), (7, 1), (0.0, 0.0), 1.0, 0.5), Sample("p", (9,), (4,), (0.0,), -1.0, 0.5)]
    near = [replace(s, behaviour_logprobs=tuple(plain_logprobs(model, s, TEMPERATURE).tolist())) for s in said]
    far = replace(near[1], behaviour_logprobs=(near[1].behaviour_logprobs[0] - 0.5,), agent="plan", turn=3)
    stats = await learn(full_policy(model, epochs=2), [[near[0], far]])
    drift = {name: stats[f"mismatch/plan/turn3/{name}"] for name in ("max_abs_nats", "k1_nats", "k3_nats")}
    assert drift == pytest.approx({"max_abs_nats": 0.5, "k1_nats": -0.5, "k3_nats": math.exp(0.5) - 1.5}, abs=1e-5)
    assert stats["mismatch//turn0/max_abs_nats"] < 1e-5


# ---- samples that no step learns from --------------------------------------------------------------------------------


def sample(prompt: int, advantage: float, agent: str = "plan", turn: int = 3) -> Sample:
    return Sample("p", (prompt, 5, 6), (7, 1), (0.0, 0.0), advantage, 0.1, agent, turn)


@pytest.fixture
def apart(plain_logprobs: Plain) -> Callable[..., Sample]:
    """``apart(model, sample, nats)``: as if the engine had given the first token ``nats`` less than the learner."""

    def build(model: Any, of: Sample, nats: float) -> Sample:
        first, *others = plain_logprobs(model, of, TEMPERATURE).tolist()
        return replace(of, behaviour_logprobs=(first - nats, *others))

    return build


async def test_samples_without_an_advantage_are_seen(tiny: Tiny, apart: Callable[..., Sample]) -> None:
    """Two learn, and agree with the engine; of two that do not learn one is half a nat apart."""
    model = tiny()
    live = [apart(model, sample(8, advantage), 0.0) for advantage in (1.0, -1.0)]
    dead = [apart(model, sample(9, 0.0), 0.5), apart(model, sample(10, 0.0), 0.0)]
    stats = await learn(full_policy(model, mismatch_share=1.0), [live, dead])
    assert stats[f"{PLACE}/samples"] == 4
    assert stats[f"{PLACE}/max_abs_nats"] == pytest.approx(0.5, abs=1e-5)
    assert stats[f"{PLACE}/k3_nats"] == pytest.approx((math.exp(0.5) - 1.5) / 8, abs=1e-6)
    assert (await learn(full_policy(tiny(), mismatch_share=0.0), [live, dead]))[f"{PLACE}/samples"] == 2


async def test_an_update_that_learns_nothing_is_seen(tiny: Tiny, apart: Callable[..., Sample]) -> None:
    model = tiny()
    stats = await learn(full_policy(model), [[apart(model, sample(8, 0.0), 0.5)]])
    assert (stats["optimizer_steps"], stats[f"{PLACE}/samples"]) == (0, 1)
    assert stats[f"{PLACE}/mean_abs_nats"] == pytest.approx(0.25, abs=1e-5)


@pytest.mark.parametrize("live_groups_only", [True, False])
@pytest.mark.parametrize("objective", [{}, {"entropy": 0.01}, {"normalisation": "token_mean"}])
@pytest.mark.parametrize("steps", [{}, {"mini_batches": 3, "epochs": 2}])
async def test_every_sample_is_seen_once(
    tiny: Tiny, live_groups_only: bool, objective: dict[str, Any], steps: dict[str, int]
) -> None:
    groups = [[sample(8 + i, a, turn=i % 2) for a in advantages] for i, advantages in enumerate([(1, -1, 0), (0, 0)])]
    groups.append([sample(8, 0.0, "tool"), sample(12, 0.0, "tool")])
    ours = full_policy(
        tiny(), objective=ClippedObjective(**objective), live_groups_only=live_groups_only, mismatch_share=1.0, **steps
    )
    stats = await learn(ours, groups)
    seen = {key.removeprefix("mismatch/"): value for key, value in stats.items() if key.endswith("/samples")}
    assert seen == {
        **{"plan/samples": 5, "plan/turn0/samples": 3, "plan/turn1/samples": 2},
        **{"tool/samples": 2, "tool/turn3/samples": 2},
    }


@pytest.mark.parametrize("steps", [{}, {"mini_batches": 2, "epochs": 2}])
async def test_what_is_learnt_stays_the_same_to_the_bit(
    tiny: Tiny, groups: Callable[..., Groups], steps: dict[str, int]
) -> None:
    """With dropout, too: scoring draws no random numbers."""
    found = []
    for share in (0.0, 0.3, 1.0):
        model = tiny()
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.2
        torch.manual_seed(0)
        ours = full_policy(model, optimizer=partial(torch.optim.SGD, lr=0.01), mismatch_share=share, **steps)
        stats = [await learn(ours, groups(seed=i)) for i in range(2)]
        kept = [{k: v for k, v in s.items() if not k.startswith("mismatch/") and k != "update_s"} for s in stats]
        found.append((kept, await ours.weights()))
    for stats, weights in found[1:]:
        assert stats == found[0][0]
        assert all(torch.equal(weights[name], found[0][1][name]) for name in weights)
