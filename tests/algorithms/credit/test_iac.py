"""IAC by hand: trajectories of single agents, whose critics read their prompts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt

import pytest

from troupe.algorithms.credit.actor_critic import CriticInput
from troupe.algorithms.credit.iac import Iac
from troupe.experience import Episode

Chain = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def valued(episode: Episode, values: Sequence[float]) -> Episode:
    for node, value in zip(episode.nodes, values, strict=True):
        node.value = value
    return episode


def two_turns(chain: Chain, **settings: object) -> Episode:
    """The team earns .5 in the first turn and 1 in the second; what the tool's proposals would have earned, 9, counts
    nothing."""
    rewards = {"turns": [0, 0, 1, 1], "team": [9, 0.5, 9, 1], "local": [0.1, 0.2, 0.3, 0]}
    return chain(1.5, ["tool", "plan"] * 2, **(rewards | settings))


def test_iac_by_hand(chain: Chain, advantages: Advantages) -> None:
    episode = valued(two_turns(chain), [1, 2, 3, 4])
    Iac(gamma=0.5, gae_lambda=0.5, normalise=False)([episode])
    # tool: rewards .1 + .5, .3 + 1; deltas .6 + .5 * 3 - 1 = 1.1, 1.3 - 3 = -1.7; A_0 = 1.1 - .25 * 1.7.
    # plan: rewards .2 + .5, 1; deltas .7 + .5 * 4 - 2 = .7, 1 - 4 = -3; A_0 = .7 - .25 * 3.
    assert advantages([episode]) == [pytest.approx([0.675, -0.05, -1.7, -3.0], abs=1e-12)]
    # Returns: .6 + .5 * 1.3, .7 + .5 * 1.
    assert [node.return_to_go for node in episode.nodes] == pytest.approx([1.25, 1.2, 1.3, 1.0], abs=1e-12)


def test_alpha_is_the_weight_of_the_teams_reward(chain: Chain, advantages: Advantages) -> None:
    episode = valued(two_turns(chain, local=[0] * 4), [0] * 4)
    for _, candidate in episode.candidates():
        candidate.reward = 2 * candidate.team
    Iac(alpha=2.0, gae_lambda=1.0, normalise=False)([episode])
    assert advantages([episode]) == [[3.0, 3.0, 2.0, 2.0]]


def test_what_the_team_earned_before_an_agents_first_message_is_not_its_own(
    chain: Chain, advantages: Advantages
) -> None:
    episode = valued(chain(1.5, ["tool", "plan"], turns=[0, 1], team=[0.5, 1]), [0, 0])
    Iac(gae_lambda=1.0, normalise=False)([episode])
    assert advantages([episode]) == [[1.5, 1.0]]


def test_where_the_turn_falls_no_turn_ends(chain: Chain, advantages: Advantages) -> None:
    """Calls of a workflow by a, a and b, where the third is paid for the second, too: the return is 1.875."""
    episode = valued(chain(1.875, ["a", "a", "b"], turns=[0, 1, 0], team=[0.5, 0.125, 1.375]), [0, 0, 0])
    assert Iac().team_rewards(episode) == [0.5, 0.0, 1.375]
    Iac(gae_lambda=1.0, normalise=False)([episode])
    assert advantages([episode]) == [[1.875, 1.375, 1.375]]


def test_each_policys_messages_are_normalised_by_themselves(chain: Chain, advantages: Advantages) -> None:
    """The tool's advantages are 1.5 and 1, the planner's too; 1.5 in both turns of another episode."""
    episodes = [valued(two_turns(chain, local=[0] * 4), [0, 0, 0, 0]) for _ in range(2)]
    for episode in episodes:
        for node, said in episode.candidates():
            said.completion = replace(said.completion, policy=node.agent)
    for node in episodes[1].nodes[1::2]:
        node.candidates[0].local = node.candidates[0].reward = 1.0  # team reward 0: the planner's own differ
        node.candidates[0].team = 0.0
    Iac(gae_lambda=1.0, std_floor=0.0)(episodes)
    # tool: 1.5, 1, 0, 0: mean .625, variance (.765625 + .140625 + 2 * .390625) / 4.
    std = sqrt(1.6875 / 4)
    assert [row[0::2] for row in advantages(episodes)] == [
        pytest.approx([0.875 / std, 0.375 / std], abs=1e-12),
        pytest.approx([-0.625 / std, -0.625 / std], abs=1e-12),
    ]


def test_the_critic_reads_what_the_agent_reads(chain: Chain) -> None:
    episode = two_turns(chain)
    assert Iac().inputs(episode) == [CriticInput("policy", node.prompt_ids) for node in episode.nodes]
