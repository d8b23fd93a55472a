"""Each agent's share of the gradient of a policy that several agents share."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from troupe.algorithms.objectives import ClippedObjective
from troupe.memory import UpdateMemoryError

from .conftest import Groups, Tiny, equal, full_policy, model_of, snapshot

SHARE = "diagnostics/{}/gradient_share"


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
    monkeypatch.setattr("troupe.models.learner.MEASURED", 1.0)
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
    assert UpdateMemoryError  # what is raised where nothing helps


async def test_of_one_agent_there_is_no_share(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    metrics = (await full_policy(tiny()).pool.update({"p": groups()}, True))["p"]
    assert not [key for key in metrics if key.startswith("diagnostics/")]


# ---- planted: one role has many times the tokens ---------------------------------------------------------------------


@pytest.mark.parametrize(("times", "least", "most"), [(1, 0.3, 0.7), (5, 0.7, 1.0), (10, 0.8, 1.0)])
async def test_a_role_with_many_times_the_tokens_has_most_of_the_gradient(
    tiny: Tiny, groups: Callable[..., Groups], times: int, least: float, most: float
) -> None:
    """Where every token weighs the same (DAPO)."""
    long = [
        [replace(s, token_ids=s.token_ids * n, behaviour_logprobs=s.behaviour_logprobs * n) for s in group]
        for i, group in enumerate(of_agents(groups(8)))
        for n in [times if i % 2 == 0 else 1]
    ]
    found = await shares(full_policy(tiny(), objective=ClippedObjective(normalisation="token_mean")), long)
    assert least < found["tool"] < most
