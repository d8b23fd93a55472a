"""The mismatch ledger sees all samples of an update, or is told how many those that it sees stand for."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
import torch

from troupe.algorithms.objectives import ClippedObjective
from troupe.experience import Sample
from troupe.models.packing import drawn, rows_of

from .conftest import TEMPERATURE, Groups, Plain, Tiny, pool

LEDGER = "mismatch/plan/turn3"


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
    stats = await pool(model, mismatch_share=1.0).update([live, dead])
    assert stats[f"{LEDGER}/samples"] == 4
    assert stats[f"{LEDGER}/max_abs_nats"] == pytest.approx(0.5, abs=1e-5)
    assert stats[f"{LEDGER}/k3_nats"] == pytest.approx((math.exp(0.5) - 1.5) / 8, abs=1e-6)
    assert (await pool(tiny(), mismatch_share=0.0).update([live, dead]))[f"{LEDGER}/samples"] == 2


async def test_an_update_that_learns_nothing_is_seen(tiny: Tiny, apart: Callable[..., Sample]) -> None:
    model = tiny()
    stats = await pool(model).update([[apart(model, sample(8, 0.0), 0.5)]])
    assert (stats["optimizer_steps"], stats[f"{LEDGER}/samples"]) == (0, 1)
    assert stats[f"{LEDGER}/mean_abs_nats"] == pytest.approx(0.25, abs=1e-5)


@pytest.mark.parametrize("live_groups_only", [True, False])
@pytest.mark.parametrize("objective", [{}, {"entropy": 0.01}, {"normalisation": "token_mean"}])
@pytest.mark.parametrize("steps", [{}, {"mini_batches": 3, "epochs": 2}])
async def test_every_sample_is_seen_once(
    tiny: Tiny, live_groups_only: bool, objective: dict[str, Any], steps: dict[str, int]
) -> None:
    groups = [[sample(8 + i, a, turn=i % 2) for a in advantages] for i, advantages in enumerate([(1, -1, 0), (0, 0)])]
    groups.append([sample(8, 0.0, "tool"), sample(12, 0.0, "tool")])
    ours = pool(
        tiny(), objective=ClippedObjective(**objective), live_groups_only=live_groups_only, mismatch_share=1.0, **steps
    )
    stats = await ours.update(groups)
    seen = {key.removeprefix("mismatch/"): value for key, value in stats.items() if key.endswith("/samples")}
    assert seen == {"plan/turn0/samples": 3, "plan/turn1/samples": 2, "tool/turn3/samples": 2}


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
        ours = pool(model, optimizer=partial(torch.optim.SGD, lr=0.01), mismatch_share=share, **steps)
        stats = [await ours.update(groups(seed=i)) for i in range(2)]
        kept = [{k: v for k, v in s.items() if not k.startswith("mismatch/") and k != "update_s"} for s in stats]
        found.append((kept, await ours.weights()))
    for stats, weights in found[1:]:
        assert stats == found[0][0]
        assert all(torch.equal(weights[name], found[0][1][name]) for name in weights)


# ---- the draw -------------------------------------------------------------------------------------------------------


def many() -> list[Sample]:
    """Forty prompts of the planner's and three of the tool's, of two samples each."""
    places = [("plan", 3)] * 40 + [("tool", 0)] * 3
    return [Sample("p", (i,), (j,), (0.0,), 0.0, 0.1, *place) for i, place in enumerate(places) for j in range(2)]


@pytest.mark.parametrize(("share", "planner", "tool"), [(0.1, 4, 1), (0.25, 10, 1), (0.5, 20, 2), (1.0, 40, 3)])
def test_a_share_of_the_prompts_of_each_place_is_drawn(share: float, planner: int, tool: int) -> None:
    found = drawn(many(), share, Random(0))
    assert Counter(s.agent for s in found) == {"plan": 2 * planner, "tool": 2 * tool}
    assert {s.weight for s in found} == {40 / planner, 3 / tool}
    assert all(len(row) == 2 for row in rows_of(found))  # prompts are drawn whole: they are the larger part
    assert found == drawn(many(), share, Random(0)) and (share == 1 or found != drawn(many(), share, Random(1)))


def test_nothing_is_drawn_from_nothing_and_with_a_share_of_0() -> None:
    assert drawn([], 0.5, Random(0)) == drawn(many(), 0.0, Random(0)) == []


def test_sums_are_right_on_average() -> None:
    """Of a value that only two prompts have, among them one of the tool's."""
    value = {5: 7.0, 41: 2.0}
    rng, draws = Random(0), 4000
    total = sum(s.weight * value.get(s.prompt_ids[0], 0.0) for _ in range(draws) for s in drawn(many(), 0.2, rng))
    assert total / draws == pytest.approx(2 * (7 + 2), rel=0.05)
