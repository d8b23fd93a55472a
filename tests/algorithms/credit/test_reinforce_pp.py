"""REINFORCE++ by hand: normalised over the tokens of an iteration, each policy by itself."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt

import pytest

from troupe.algorithms.credit.base import CreditRule
from troupe.algorithms.credit.checks import CreditError
from troupe.algorithms.credit.reinforce_pp import ReinforcePP
from troupe.experience import Episode

Chain = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def test_reinforce_pp_normalises_over_the_iterations_tokens(chain: Chain, advantages: Advantages) -> None:
    # Two tasks, one episode each: R = 1 on a message of 3 tokens, R = 0 on two messages of 1 and 2 tokens.
    # Six tokens, three of them 1: mean 1/2, std 1/2: advantages 1 and -1.
    episodes = [chain(1, ["solo"], tokens=[3]), chain(0, ["solo"] * 2, task="u", tokens=[1, 2])]
    ReinforcePP(std_floor=0)(episodes)
    assert advantages(episodes) == [[1.0], [-1.0, -1.0]]
    ReinforcePP().check(1, "chain")


def test_reinforce_pp_with_the_groups_mean(chain: Chain, advantages: Advantages) -> None:
    # Task t: 1, 0 -> 1/2, -1/2.  Task u: 3, 1 -> 1, -1.  Tokens 1, 1, 2, 2: mean 0,
    # squares 1/4 + 1/4 + 2 + 2 = 4.5, / 6 = 0.75.
    episodes = [chain(v, ["solo"], sample=i) for i, v in enumerate([1, 0])]
    episodes += [chain(v, ["solo"], task="u", sample=i, tokens=[2]) for i, v in enumerate([3, 1])]
    ReinforcePP(baseline="mean", std_floor=0)(episodes)
    std = sqrt(0.75)
    found = [a for row in advantages(episodes) for a in row]
    assert found == pytest.approx([0.5 / std, -0.5 / std, 1 / std, -1 / std], abs=1e-12)


def by_agent(episodes: Sequence[Episode]) -> Sequence[Episode]:
    """``episodes``, each agent with a policy of its own."""
    for episode in episodes:
        for node, said in episode.candidates():
            said.completion = replace(said.completion, policy=node.agent)
    return episodes


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


@pytest.mark.parametrize("rule", [ReinforcePP(), ReinforcePP(baseline="mean")], ids=lambda rule: rule.baseline)
def test_equal_returns_are_exactly_0(rule: CreditRule, chain: Chain, advantages: Advantages) -> None:
    tasks = [(task, sample) for task in "tuv" for sample in range(3)]
    rows = [chain(0.1, ["tool", "plan"], task=t, sample=i, tokens=[1 + i, 7]) for t, i in tasks]
    episodes = by_agent(rows)
    rule(episodes)
    assert advantages(episodes) == [[0.0, 0.0]] * 9


def test_the_kl_penalty_is_in_the_reward_before_the_normalisation(chain: Chain, advantages: Advantages) -> None:
    """R = 1 on two tokens, R = 0 on one; log-probabilities are -.5, so that k1 is .5, -.25 and 0."""
    episodes = [chain(1, ["solo"], tokens=[2]), chain(0, ["solo"], task="u")]
    for episode, logprobs in zip(episodes, [(-1.0, -0.25), (-0.5,)], strict=True):
        episode.nodes[0].candidates[0].reference_logprobs = logprobs
    ReinforcePP(kl=2.0, std_floor=0)(episodes)
    # Sums from each token on: .25, -.25; 0.  Values 1 - 2 * .25 = .5, 1 + .5 = 1.5, 0: mean 2/3,
    # variance (.25 + 2.25) / 3 - 4/9 = 7/18.
    std = sqrt(7 / 18)
    found = [
        [(candidate.advantage or 0.0) - penalty for penalty in candidate.penalties]
        for episode in episodes
        for _, candidate in episode.candidates()
    ]
    assert found == [
        pytest.approx([(0.5 - 2 / 3) / std, (1.5 - 2 / 3) / std], abs=1e-12),
        pytest.approx([-2 / 3 / std], abs=1e-12),
    ]


def test_without_a_divergence_the_penalty_changes_nothing(chain: Chain, advantages: Advantages) -> None:
    def judged(kl: float) -> list[list[float | None]]:
        episodes = [chain(1, ["solo"], tokens=[3]), chain(0, ["solo"] * 2, task="u", tokens=[1, 2])]
        for _, candidate in (pair for episode in episodes for pair in episode.candidates()):
            candidate.reference_logprobs = candidate.completion.logprobs
        ReinforcePP(kl=kl)(episodes)
        assert not any(p for e in episodes for _, candidate in e.candidates() for p in candidate.penalties)
        return advantages(episodes)

    assert judged(0.5) == [pytest.approx(row, abs=1e-12) for row in judged(0.0)]


def test_a_penalty_that_cannot_be_computed_is_refused(chain: Chain) -> None:
    with pytest.raises(CreditError, match="needs the log-probabilities of the reference"):
        ReinforcePP(kl=0.1)([chain(1, ["solo"]), chain(0, ["solo"], task="u")])
    with pytest.raises(ValueError, match=r"algorithm\.credit\.kl=0\.1 is for baseline=none"):
        ReinforcePP(kl=0.1, baseline="mean")
    with pytest.raises(ValueError, match=r"algorithm\.credit\.kl must be at least 0"):
        ReinforcePP(kl=-0.1)
