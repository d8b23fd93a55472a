"""MAAC by hand: one trajectory of the team, whose critic reads the joint history."""

from collections.abc import Callable, Sequence

import pytest

from troupe.algorithms.credit.actor_critic import TEAM
from troupe.algorithms.credit.maac import Maac
from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task

Chain = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def test_one_after_the_other(chain: Chain, advantages: Advantages) -> None:
    episode = chain(1.5, ["tool", "plan"] * 2, turns=[0, 0, 1, 1], team=[9, 0.5, 9, 1], local=[0.1, 0, 0, 0.2])
    for node, value in zip(episode.nodes, [1, 2, 3, 4], strict=True):
        node.value = value
    Maac(gamma=0.5, gae_lambda=0.5, normalise=False)([episode])
    # Rewards .1, .5, 0, 1.2; deltas .1 + 1 - 1, .5 + 1.5 - 2, 0 + 2 - 3, 1.2 - 4 = .1, 0, -1, -2.8.
    # A_2 = -1 - .25 * 2.8 = -1.7;  A_1 = -.425;  A_0 = .1 - .25 * .425.
    assert advantages([episode]) == [pytest.approx([-0.00625, -0.425, -1.7, -2.8], abs=1e-12)]
    # Returns 1.2, .6, .5 + .3, .1 + .4.
    assert [node.return_to_go for node in episode.nodes] == pytest.approx([0.5, 0.8, 0.6, 1.2], abs=1e-12)


def test_the_joint_history_has_the_others_messages_and_none_that_it_judges(chain: Chain) -> None:
    """Prompts are (0, number), messages of 1 token are (1,)."""
    episode = chain(1, ["tool", "plan"] * 2, turns=[0, 0, 1, 1])
    assert [(each.critic, each.token_ids) for each in Maac().inputs(episode)] == [
        (TEAM, (0, 0)),
        (TEAM, (0, 0, 1, 0, 1)),
        (TEAM, (0, 1, 1, 0, 2)),  # its first message is in its new prompt, or nowhere
        (TEAM, (0, 2, 1, 0, 3)),
    ]


def at_once() -> Episode:
    """Two turns of two agents; the team earns .5, then 1."""

    def node(agent: str, turn: int, prompt: int, team: float, own: float) -> Node:
        completion = Completion((9,), (-0.5,), "U", "stop", agent, 0)
        return Node("t", agent, turn, (prompt,), [Candidate(completion, own, team, team + own)], value=float(turn))

    nodes = [node("a", 0, 1, 0.5, 0.1), node("b", 0, 2, 0.5, 0.2), node("a", 1, 3, 1, 0), node("b", 1, 4, 1, 0)]
    end = Outcome(True, 2, 1.5, 1.65)
    edges = [JointAction({"a": (0, 0), "b": (1, 0)}, child=2), JointAction({"a": (2, 0), "b": (3, 0)}, outcome=end)]
    return Episode(Task("t", "train", {}), nodes, edges)


def test_at_once(advantages: Advantages) -> None:
    episode = at_once()
    assert [each.token_ids for each in Maac().inputs(episode)] == [(1, 2), (1, 2), (3, 4), (3, 4)]
    Maac(gae_lambda=0.0, normalise=False)([episode])
    # The team's reward counts once: .5 + .1 + .2 + 1 - 0;  1 - 1.
    assert advantages([episode]) == [pytest.approx([1.8, 1.8, 0, 0], abs=1e-12)]
    assert [node.return_to_go for node in episode.nodes] == pytest.approx([1.8, 1.8, 1, 1], abs=1e-12)
