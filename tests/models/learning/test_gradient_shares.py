"""Each agent's share of the gradient of a policy that several agents share, and of the weight in its loss."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from troupe.algorithms.objectives import ClippedObjective
from troupe.diagnostics.alarms import State, alarms, check
from troupe.diagnostics.settings import AlarmSettings
from troupe.experience import Sample

from ..conftest import Groups, Tiny, equal, full_policy, learn, model_of, snapshot

SHARE = "diagnostics/{}/gradient_share"
WEIGHT = "diagnostics/{}/{}"


def of_agents(groups: Groups) -> Groups:
    """The groups of two agents in turn."""
    return [[replace(s, agent=("tool", "plan")[i % 2]) for s in group] for i, group in enumerate(groups)]


async def shares(policy: object, groups: Groups) -> dict[str, float]:
    metrics = (await policy.pool.update({"p": groups}, True))["p"]
    return {agent: metrics[SHARE.format(agent)] for agent in ("tool", "plan")}


async def test_the_shares_are_those_of_each_agents_own_update(
    tiny: Tiny, groups: Callable[..., Groups], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the norms of the gradients of two updates, each on the samples of one agent with the weights of both; where
    it is measured from all of them.
    """
    monkeypatch.setattr("troupe.models.learning.learner.MEASURED", 1.0)
    both, model = of_agents(groups()), tiny(torch.float64)
    found = await shares(full_policy(copy.deepcopy(model)), both)
    norms = {}
    for agent in ("tool", "plan"):
        alone = [[s if s.agent == agent else replace(s, advantage=0.0) for s in group] for group in both]
        norms[agent] = (await full_policy(copy.deepcopy(model)).pool.update({"p": alone}))["p"]["grad_norm"]
    total = sum(norms.values())
    assert found == pytest.approx({agent: norm / total for agent, norm in norms.items()})


@pytest.mark.parametrize("steps", [{}, {"mini_batches": 2, "epochs": 2}])
async def test_what_is_learnt_stays_the_same_to_the_bit(
    tiny: Tiny, groups: Callable[..., Groups], steps: dict[str, int]
) -> None:
    """With dropout and momentum, too."""
    states = []
    for measured in (False, True):
        model = tiny()
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.2
        torch.manual_seed(0)
        policy = full_policy(model, optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.9), **steps)
        for seed in range(2):
            await policy.pool.update({"p": of_agents(groups(seed=seed))}, measured)
        states.append(snapshot(policy))
        assert model_of(policy).training
    assert equal(*states)


async def test_a_lack_of_memory_here_leaves_no_trace(
    tiny: Tiny, groups: Callable[..., Groups], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = full_policy(tiny())
    backward, left = policy.learner._backward, [1]

    def scarce(samples: object, old: object) -> object:
        if left and left.pop():
            raise torch.OutOfMemoryError("no memory left")
        return backward(samples, old)

    monkeypatch.setattr(policy.learner, "_backward", scarce)
    before = policy.learner.max_tokens
    metrics = (await policy.pool.update({"p": of_agents(groups())}, True))["p"]
    assert not left and SHARE.format("tool") in metrics
    assert (policy.learner.max_tokens, metrics["faults/oom_splits"]) == (before, 0)


@pytest.mark.slow
async def test_where_memory_never_suffices_here_the_update_goes_on(
    tiny: Tiny, groups: Callable[..., Groups], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In evaluation mode a pass needs more memory than in training with gradient checkpointing."""
    model = tiny()
    plain, measured = (full_policy(copy.deepcopy(model)) for _ in range(2))
    backward = measured.learner._backward

    def scarce(samples: object, old: object) -> object:
        if not measured.learner.module.training:
            raise torch.OutOfMemoryError("no memory left")
        return backward(samples, old)

    monkeypatch.setattr(measured.learner, "_backward", scarce)
    before = measured.learner.max_tokens
    metrics = (await measured.pool.update({"p": of_agents(groups())}, True))["p"]
    await plain.pool.update({"p": of_agents(groups())}, False)
    assert SHARE.format("tool") not in metrics and metrics["faults/oom_splits"] == 0
    assert measured.learner.max_tokens == before and measured.learner.module.training
    assert equal(snapshot(measured), snapshot(plain))


async def test_of_one_agent_there_is_no_share(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    metrics = (await full_policy(tiny()).pool.update({"p": groups()}, True))["p"]
    assert not [key for key in metrics if key.startswith("diagnostics/")]


# ---- the weight in the loss ------------------------------------------------------------------------------------------


def of_lengths(tool: int, plan: int) -> Groups:
    """Two groups of the tool's messages, of 1 and 3 parts of the loss, and one of the plan's, of 4."""
    return [
        [Sample("p", (5, i), (6,) * tokens, (-1.0,) * tokens, advantage, weight, agent)]
        for i, (agent, tokens, advantage, weight) in enumerate(
            [("tool", tool, 1.0, 1 / 8), ("tool", tool, 0.0, 3 / 8), ("plan", plan, -1.0, 1 / 2)]
        )
    ]


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"normalisation": "sequence_mean"}, 1 / 2),
        ({"normalisation": "token_mean"}, 12 / 14),  # 12 tokens of the tool, 2 of the plan
        ({"normalisation": "constant", "length": 9}, 3 / 4),  # 6 tokens times 1/2, 2 times 1/2
        ({"normalisation": "sequence_sum"}, 3 / 4),
        ({"normalisation": "token_mean", "live_groups_only": True}, 6 / 8),
    ],
    ids=str,
)
async def test_the_weight_of_an_agent_in_the_loss(tiny: Tiny, settings: dict[str, Any], share: float) -> None:
    """By hand, and beside its part of the messages: two of three, of the live ones one of two."""
    live = {"live_groups_only": settings.pop("live_groups_only", False)}
    policy = full_policy(tiny(), objective=ClippedObjective(**settings), **live)
    metrics = await learn(policy, of_lengths(6, 2))
    messages = 1 / 2 if live["live_groups_only"] else 2 / 3
    assert metrics[WEIGHT.format("tool", "weight_share")] == pytest.approx(share)
    assert metrics[WEIGHT.format("plan", "weight_share")] == pytest.approx(1 - share)
    assert metrics[WEIGHT.format("tool", "excess_weight")] == pytest.approx(share - messages)


# ---- planted: one role has many times the tokens ---------------------------------------------------------------------


@pytest.mark.parametrize(("times", "least", "most", "raised"), [(1, 0.3, 0.7, 0), (5, 0.7, 1.0, 1), (10, 0.8, 1.0, 1)])
async def test_a_role_with_many_times_the_tokens_has_most_of_the_gradient(
    tiny: Tiny, groups: Callable[..., Groups], times: int, least: float, most: float, raised: int
) -> None:
    """Where every token weighs the same (DAPO); the alarm on the weight says so, on the gradient's it may not."""
    long = [
        [replace(s, token_ids=s.token_ids * n, behaviour_logprobs=s.behaviour_logprobs * n) for s in group]
        for i, group in enumerate(of_agents(groups(8)))
        for n in [times if i % 2 == 0 else 1]
    ]
    policy = full_policy(tiny(), objective=ClippedObjective(normalisation="token_mean"))
    metrics = (await policy.pool.update({"p": long}, True))["p"]
    assert least < metrics[SHARE.format("tool")] < most
    settings = AlarmSettings(gradient_share=0)
    state: State = {}
    for iteration in range(settings.window):
        check({"iteration": iteration, **metrics}, settings, state)
    names = [alarm.name for alarm in alarms(state, settings, {}) if alarm.alarm == "role_dominance"]
    assert names == ["tool"] * raised
