"""Credit rules: what each must give and declare, group-relative advantages by hand, those normalised over an iteration,
and what changes nothing."""

import logging
from collections.abc import Callable, Hashable, Sequence
from math import sqrt
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.base import Baseline, CreditRule, group_advantages, whiten
from troupe.algorithms.credit.checks import CreditError
from troupe.algorithms.credit.dr_mas import DrMas
from troupe.algorithms.credit.gigpo import Gigpo
from troupe.algorithms.credit.grpo import Grpo, MasGrpo
from troupe.algorithms.credit.reinforce_pp import ReinforcePP
from troupe.experience import Candidate, Completion, Episode, Node

Chain = Callable[..., Episode]
Tree = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


class Own(CreditRule):
    """A rule by agent and turn whose advantages are ``function`` of a group's values."""

    one_prompt_per_group: Any = True
    topologies: Any = ("tree",)

    def __init__(self, function: Callable[[Sequence[float]], Any] = list) -> None:
        self.function = function

    def key(self, node: Node) -> Hashable:
        return (node.agent, node.turn)

    def advantages(self, values: Sequence[float]) -> list[float]:
        advantages: list[float] = self.function(values)
        return advantages


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda values: values[:-1], r"Own\.advantages must return a list of 3 .*group \('tool', 0\).*returned \[1"),
        (lambda values: None, r"Own\.advantages must return a list of 3 numbers.*returned None"),
        (lambda values: [float("nan")] * 3, r"Own\.advantages of the values \[1\.0, 2\.0, 4\.0\] of the group .*nan"),
    ],
)
def test_advantages_that_are_none(tree: Tree, function: Callable[[Sequence[float]], Any], message: str) -> None:
    episodes = [tree(("tool", 0, [1, 2, 4]))]
    for judge in (Own(function), Own(function).live):
        with pytest.raises(CreditError, match=message):
            judge(episodes)


def test_a_single_candidate_that_is_left_has_no_advantage(tree: Tree) -> None:
    episode = tree(("tool", 0, [3.0]), ("plan", 0, [1, 2]))
    rule = Own(lambda values: [value / (len(values) - 1) for value in values])
    rule([episode])
    assert [candidate.advantage for _, candidate in episode.candidates()] == [0, 1, 2]
    rule.min_samples = 1  # a rule that compares with nothing judges it too
    with pytest.raises(ZeroDivisionError):
        rule([episode])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "topologies",
            ("three",),
            r"Own\.topologies must be a tuple of some of tree, chain, joint, replay, forest, got",
        ),
        ("topologies", "tree", r"Own\.topologies must be a tuple .* got 'tree'"),
        ("topologies", (), r"Own\.topologies must be a tuple .* got \(\)"),
        ("topologies", ("chain",), r"Own judges episodes of a chain sampler, but algorithm\.sampler gives trees"),
        ("one_prompt_per_group", None, r"Own\.one_prompt_per_group must be declared: True or False"),
    ],
)
def test_what_a_rule_declares(name: str, value: object, message: str) -> None:
    rule = Own()
    rule.check(4, "tree")
    setattr(rule, name, value)
    with pytest.raises(ValueError, match=rf"^algorithm\.credit: {message}"):
        rule.check(4, "tree")


def test_a_group_that_lost_candidates(tree: Tree, advantages: Advantages) -> None:
    episode = tree(("tool", 0, [1, 0, 0]), ("plan", 0, [1]), ("tool", 1, []))
    AtGrpo(normalise=False)([episode])
    assert advantages([episode]) == [pytest.approx([2 / 3, -1 / 3, -1 / 3, 0], abs=1e-12)]


# ---- group-relative advantages ---------------------------------------------------------------------------------------

BASELINES: list[Baseline] = ["mean", "leave_one_out", "max", "none"]
SHIFT_FREE: list[Baseline] = ["mean", "leave_one_out", "max"]
values = st.lists(st.integers(0, 8).map(lambda n: n / 8), min_size=2, max_size=8)


# v = 1, 2.5, 0, 4: mean 1.875, max 4.  Means of the others: 6.5/3, 5/3, 7.5/3, 3.5/3.
BY_HAND = {
    "mean": [-0.875, 0.625, -1.875, 2.125],
    "leave_one_out": [1 - 6.5 / 3, 2.5 - 5 / 3, 0 - 7.5 / 3, 4 - 3.5 / 3],
    "max": [-3.0, -1.5, -4.0, 0.0],
    "none": [1.0, 2.5, 0.0, 4.0],
}


@pytest.mark.parametrize("baseline", BASELINES)
def test_by_hand(baseline: Baseline) -> None:
    assert group_advantages([1, 2.5, 0, 4], baseline, False, 0) == pytest.approx(BY_HAND[baseline], abs=1e-12)


def test_divided_by_the_std() -> None:
    # Squared deviations .765625 + .390625 + 3.515625 + 4.515625 = 9.1875; / 3 = 3.0625; std 1.75.
    assert group_advantages([1, 2.5, 0, 4], "mean", True, 0.25) == pytest.approx(
        [a / 2 for a in BY_HAND["mean"]], abs=1e-12
    )
    assert group_advantages([1, 2.5, 0, 4], "max", True, 0.25) == pytest.approx(
        [a / 2 for a in BY_HAND["max"]], abs=1e-12
    )


def test_the_four_differ_and_a_std_cancels_one_difference(caplog: pytest.LogCaptureFixture) -> None:
    found = [tuple(group_advantages([1, 2.5, 0, 4], baseline, False, 0)) for baseline in BASELINES]
    assert len(set(found)) == 4
    with caplog.at_level(logging.WARNING):
        Grpo(baseline="leave_one_out", normalise=False)
        Grpo(baseline="max")
        assert not caplog.records
        Grpo(baseline="leave_one_out")
    assert "K / (K - 1) times those of baseline=mean" in caplog.text
    scaled = [a * 4 / 3 for a in group_advantages([1, 2.5, 0, 4], "mean", True, 0.1)]
    assert group_advantages([1, 2.5, 0, 4], "leave_one_out", True, 0.1) == pytest.approx(scaled, abs=1e-12)


@given(values, st.randoms(use_true_random=False), st.sampled_from(BASELINES))
def test_permuting_candidates_permutes_advantages(rewards: list[float], random: Random, baseline: Baseline) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)
    straight = group_advantages(rewards, baseline, False, 0)
    shuffled = group_advantages([rewards[i] for i in order], baseline, False, 0)
    assert shuffled == pytest.approx([straight[i] for i in order], abs=1e-12)


@given(values, st.integers(-16, 16).map(lambda n: n / 8), st.sampled_from(SHIFT_FREE), st.booleans())
def test_a_constant_on_every_value_changes_nothing(
    rewards: list[float], constant: float, baseline: Baseline, normalise: bool
) -> None:
    straight = group_advantages(rewards, baseline, normalise, 0.1)
    assert group_advantages([r + constant for r in rewards], baseline, normalise, 0.1) == pytest.approx(
        straight, abs=1e-12
    )


@pytest.mark.parametrize("baseline", SHIFT_FREE)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_equal_values_and_a_candidate_left_alone_teach_nothing(baseline: Baseline, count: int) -> None:
    assert group_advantages([0.1] * count, baseline, False, 0) == [0.0] * count


def test_values_that_are_equal_but_for_rounding_teach_nothing() -> None:
    """A share of tests as the sum of its gains: 2/6 then 3/6 more is 5/6 in all but the last bit."""
    gained = 2 / 6 + (5 / 6 - 2 / 6)
    assert gained != 5 / 6
    assert group_advantages([gained, 5 / 6, 5 / 6], "mean", True, 0) == [0.0] * 3
    assert group_advantages([1e-9, 0, 0, 0], "mean", True, 0)[0] == pytest.approx(1.5)


def test_reinforce_keeps_its_values() -> None:
    assert group_advantages([0.5, 0.5], "none", False, 0) == [0.5, 0.5]
    AtGrpo(baseline="none", normalise=False).check(1, "tree")


# ---- every rule of episodes ------------------------------------------------------------------------------------------

RULES: list[CreditRule] = [Grpo(), MasGrpo(), DrMas(), ReinforcePP(), ReinforcePP(baseline="mean"), Gigpo()]
names = [f"{type(rule).__name__}-{rule.baseline}" for rule in RULES]  # type: ignore[attr-defined]
rules = pytest.mark.parametrize("rule", RULES, ids=names)


def some(chain: Chain, shift: float = 0.0) -> list[Episode]:
    """Three episodes of two tasks each; ``shift`` is added to every return."""
    found = []
    for task, returns in {"t": [1.5, 0.25, 0.5], "u": [0, 1, 1]}.items():
        for sample, value in enumerate(returns):
            agents = ["tool", "plan"] * (1 + sample % 2)
            found.append(chain(value + shift, agents, task=task, sample=sample, states=["s"] * len(agents)))
    return found


@rules
def test_the_order_of_episodes_does_not_matter(rule: CreditRule, chain: Chain, advantages: Advantages) -> None:
    straight, turned = some(chain), some(chain)
    rule(straight)
    rule(turned[::-1])
    for one, other in zip(advantages(straight), advantages(turned), strict=True):
        assert other == pytest.approx(one, abs=1e-12)
    assert len({a for row in advantages(straight) for a in row}) > 2


@rules
def test_a_constant_on_every_return_changes_nothing(rule: CreditRule, chain: Chain, advantages: Advantages) -> None:
    straight, shifted = some(chain), some(chain, 0.5)
    rule(straight)
    rule(shifted)
    for one, other in zip(advantages(straight), advantages(shifted), strict=True):
        assert other == pytest.approx(one, abs=1e-12)


@rules
def test_judging_twice_is_judging_once(rule: CreditRule, chain: Chain, advantages: Advantages) -> None:
    episodes = some(chain)
    rule(episodes)
    once = advantages(episodes)
    rule(episodes)
    assert advantages(episodes) == once


def test_live_tasks_have_groups_that_differ(chain: Chain) -> None:
    episodes = [chain(v, ["solo"], task=t, sample=i) for t in "abc" for i, v in enumerate([1, 0 if t == "b" else 1])]
    assert Grpo().live(episodes) == {"b"}
    assert Grpo(baseline="none", normalise=False).live(episodes) == {"a", "b", "c"}


# ---- normalised over an iteration, each policy by itself -----------------------------------------------------------


def advantaged(advantage: float, policy: str = "policy") -> Candidate:
    return Candidate(Completion((1,), (-0.5,), "U", "stop", policy, 0), 0.0, 0.0, 0.0, advantage=advantage)


def test_whitening_counts_tokens() -> None:
    # Tokens: 2 two times, -1 six times: mean (4 - 6) / 8 = -0.25; squares 2 * 5.0625 + 6 * 0.5625 = 13.5; / 8 = 1.6875
    # std 1.299038105677; 2.25 / std = 1.732050807569; -0.75 / std = -0.577350269190
    both = [advantaged(2), advantaged(-1)]
    whiten(both, [2, 6], 0.0)
    assert [c.advantage for c in both] == pytest.approx([1.732050807569, -0.577350269190], abs=1e-12)


def test_whitening_equal_advantages_gives_zero() -> None:
    both = [advantaged(0.1) for _ in range(3)]
    whiten(both, [1, 5, 2], 0.0)
    assert [c.advantage for c in both] == [0.0, 0.0, 0.0]


def test_each_policy_is_normalised_by_itself() -> None:
    # a: 2, 0, one token each: mean 1, std 1.  b: 11 once, 9 on three tokens: mean 38 / 4 = 9.5,
    # squares (2.25 + 3 * 0.25) / 4 = 0.75.
    mixed = [advantaged(2, "a"), advantaged(11, "b"), advantaged(0, "a"), advantaged(9, "b")]
    whiten(mixed, [1, 1, 1, 3], 0.0)
    expected = [1, 1.5 / sqrt(0.75), -1, -0.5 / sqrt(0.75)]
    assert [c.advantage for c in mixed] == pytest.approx(expected, abs=1e-12)


def test_equal_values_of_one_policy_are_exactly_0_beside_another() -> None:
    mixed = [advantaged(0.1, "a"), advantaged(3, "b"), advantaged(0.1, "a"), advantaged(1, "b")]
    whiten(mixed, [3, 1, 5, 1], 0.0)
    assert [c.advantage for c in mixed] == [0.0, 1.0, 0.0, -1.0]


def test_without_a_shift_0_stays_0() -> None:
    # Mean square (2 * .25 + .25 + 5 * 0) / 8 = 0.09375.
    some = [advantaged(0.5, "a"), advantaged(-0.5, "a"), advantaged(0, "a")]
    whiten(some, [2, 1, 5], 0.0, shift=False)
    assert [c.advantage for c in some] == [*(pytest.approx(v / sqrt(0.09375), abs=1e-12) for v in (0.5, -0.5)), 0.0]
