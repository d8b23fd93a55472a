"""Normalisation over an iteration: values worked out by hand, each policy by itself, and what stays exactly 0."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt

import pytest

from troupe.algorithms.credit.base import CreditRule
from troupe.algorithms.credit.baselines import whiten
from troupe.algorithms.credit.gdpo import Gdpo
from troupe.algorithms.credit.reinforce_pp import ReinforcePP
from troupe.experience import Candidate, Completion, Episode

Chain = Callable[..., Episode]
Tree = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def candidate(advantage: float, policy: str) -> Candidate:
    return Candidate(Completion((1,), (-0.5,), "U", "stop", policy, 0), 0.0, 0.0, 0.0, advantage=advantage)


def by_agent(episodes: Sequence[Episode]) -> Sequence[Episode]:
    """``episodes``, each agent with a policy of its own."""
    for episode in episodes:
        for node, said in episode.candidates():
            said.completion = replace(said.completion, policy=node.agent)
    return episodes


def test_each_policy_is_normalised_by_itself() -> None:
    # a: 2, 0, one token each: mean 1, std 1.  b: 11 once, 9 on three tokens: mean 38 / 4 = 9.5,
    # squares (2.25 + 3 * 0.25) / 4 = 0.75.
    mixed = [candidate(2, "a"), candidate(11, "b"), candidate(0, "a"), candidate(9, "b")]
    whiten(mixed, [1, 1, 1, 3], 0.0)
    expected = [1, 1.5 / sqrt(0.75), -1, -0.5 / sqrt(0.75)]
    assert [c.advantage for c in mixed] == pytest.approx(expected, abs=1e-12)


def test_equal_values_of_one_policy_are_exactly_0_beside_another() -> None:
    mixed = [candidate(0.1, "a"), candidate(3, "b"), candidate(0.1, "a"), candidate(1, "b")]
    whiten(mixed, [3, 1, 5, 1], 0.0)
    assert [c.advantage for c in mixed] == [0.0, 1.0, 0.0, -1.0]


def test_without_a_shift_0_stays_0() -> None:
    # Mean square (2 * .25 + .25 + 5 * 0) / 8 = 0.09375.
    some = [candidate(0.5, "a"), candidate(-0.5, "a"), candidate(0, "a")]
    whiten(some, [2, 1, 5], 0.0, shift=False)
    assert [c.advantage for c in some] == [*(pytest.approx(v / sqrt(0.09375), abs=1e-12) for v in (0.5, -0.5)), 0.0]


def test_reinforce_pp_centres_policies_with_different_means(chain: Chain, advantages: Advantages) -> None:
    """The planner speaks three times where the episode fails: the means of tool (1/2) and planner (1/4) differ."""
    episodes = by_agent([chain(1, ["tool", "plan"]), chain(0, ["tool", "plan", "plan", "plan"], sample=1)])
    ReinforcePP(std_floor=0)(episodes)
    # tool: 1, 0: std 1/2.  plan: 1, 0, 0, 0: std sqrt(3) / 4.
    win, loss = 0.75 / (sqrt(3) / 4), -0.25 / (sqrt(3) / 4)
    assert advantages(episodes) == [
        pytest.approx([1, win], abs=1e-12),
        pytest.approx([-1, loss, loss, loss], abs=1e-12),
    ]


def test_reinforce_pp_baseline_leaves_dead_groups_at_exactly_0(chain: Chain, advantages: Advantages) -> None:
    """Task t: 1 on one token, 0 on three.  The mean over tokens is -1/4, and was taken off task u, too."""
    episodes = [chain(1, ["solo"], tokens=[1]), chain(0, ["solo"], sample=1, tokens=[3])]
    episodes += [chain(0.1, ["solo"], task="u", sample=i, tokens=[4]) for i in range(3)]
    ReinforcePP(baseline="mean", std_floor=0)(episodes)
    std = sqrt((1 * 0.25 + 3 * 0.25) / 16)
    assert advantages(episodes) == [[pytest.approx(0.5 / std)], [pytest.approx(-0.5 / std)], [0.0], [0.0], [0.0]]


def test_gdpo_leaves_dead_groups_at_exactly_0(tree: Tree, advantages: Advantages) -> None:
    """The mean over the iteration is rounding alone, 1e-17 or so."""
    episode = tree(("tool", 0, [0.1, 0.7, 0.3]), ("plan", 0, [0.3, 0.3, 0.3]), ("tool", 1, [0.9, 0.1, 0.2]))
    Gdpo(weights={"team": 1, "local": 1})([episode])
    assert advantages([episode])[0][3:6] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rule", [ReinforcePP(), ReinforcePP(baseline="mean")], ids=lambda rule: rule.baseline)
def test_equal_returns_are_exactly_0(rule: CreditRule, chain: Chain, advantages: Advantages) -> None:
    tasks = [(task, sample) for task in "tuv" for sample in range(3)]
    rows = [chain(0.1, ["tool", "plan"], task=t, sample=i, tokens=[1 + i, 7]) for t, i in tasks]
    episodes = by_agent(rows)
    rule(episodes)
    assert advantages(episodes) == [[0.0, 0.0]] * 9
