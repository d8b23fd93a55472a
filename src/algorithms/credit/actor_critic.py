"""Generalised advantage estimation, and what credit rules with a critic have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...errors import NotNegative, check_fields
from ...errors import Share as Fraction
from ...experience import Episode, Node, Weighting
from .base import CreditRule, Share, nodes_by_step, turn_ends, whiten
from .checks import CreditError
from .grpo import episode_return


def gae(rewards: Sequence[float], values: Sequence[float], gamma: float, gae_lambda: float) -> list[float]:
    """A_t = sum over k of (gamma lambda)^k delta_(t+k), with delta_t = r_t + gamma V_(t+1) - V_t, where V after the end
    is 0 (arXiv 1506.02438, equations 12 and 16).

    With ``gae_lambda`` 0, A_t = delta_t; with 1, the discounted return less V_t.
    """
    advantages: list[float] = []
    advantage = following = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        advantage = reward + gamma * following - value + gamma * gae_lambda * advantage
        advantages.append(advantage)
        following = value
    return advantages[::-1]


TEAM = "team"
"""The name of a centralised critic."""


@dataclass(frozen=True)
class CriticStep:
    """One step of a critic's trajectory: the nodes whose messages it judges together, and the reward up to its next
    step.  All of ``nodes`` have one value.
    """

    nodes: Sequence[Node]
    reward: float


@dataclass(frozen=True)
class CriticInput:
    """What a critic reads to judge a node."""

    critic: str
    """Its name: :data:`TEAM`, or that of the policy whose agents it judges."""
    token_ids: tuple[int, ...]


@dataclass(kw_only=True, eq=False)
class ActorCritic(CreditRule):
    """Advantages by :func:`gae` from the values of a critic, message by message (Sutton et al. 2000; GAE: arXiv
    1506.02438).

    Before the rule, each node's ``value`` is set by the critic that :meth:`inputs` names; the rule sets its
    ``return_to_go``, which the critic then learns.  ``gamma`` and ``gae_lambda`` count steps, not tokens.  ``alpha`` is
    the sampler's.  A rule declares whether its critic is ``centralised``: one of the team; else each policy that learns
    has one.  With ``normalise``, A <- (A - mean A) / (std A + ``std_floor``) over a policy's messages of the
    iteration.  One episode per task is enough.  Its critics are built by the rooms ``setup`` and ``models``.
    """

    centralised: ClassVar[bool]
    one_prompt_per_group = False
    topologies = ("chain",)
    min_samples = 1

    gamma: Fraction = 1.0
    gae_lambda: Fraction = 0.95
    alpha: float = 1.0
    normalise: bool = True
    std_floor: NotNegative = 1e-6
    weight: Weighting = "episode"

    def __post_init__(self) -> None:
        check_fields(self, "algorithm.credit.")

    @abstractmethod
    def inputs(self, episode: Episode) -> list[CriticInput]:
        """What is read to judge each node of a chain, in the order of the nodes."""

    @abstractmethod
    def trajectories(self, episode: Episode) -> list[list[CriticStep]]:
        """The steps of each trajectory in a chain; every node is in one of them."""

    def key(self, node: Node) -> Hashable:
        return node.task_id

    def advantages(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        for steps in self.trajectories(episode):
            rewards, values = [step.reward for step in steps], [_value(episode, step) for step in steps]
            for step, advantage in zip(steps, gae(rewards, values, self.gamma, self.gae_lambda), strict=True):
                yield episode.task.task_id, Share(advantage, [node.candidates[0] for node in step.nodes])

    def __call__(self, episodes: Sequence[Episode]) -> None:
        super().__call__(episodes)
        for episode in episodes:
            for steps in self.trajectories(episode):
                returns = gae([step.reward for step in steps], [0.0] * len(steps), self.gamma, 1.0)
                for step, value in zip(steps, returns, strict=True):
                    for node in step.nodes:
                        node.return_to_go = value
        if self.normalise:
            candidates = [candidate for episode in episodes for _, candidate in episode.candidates()]
            whiten(candidates, [1] * len(candidates), self.std_floor)

    def live(self, episodes: Sequence[Episode]) -> set[str]:
        """All tasks: whether one has an advantage depends on the critic."""
        return {episode.task.task_id for episode in episodes}

    def team_rewards(self, episode: Episode) -> list[float]:
        """``alpha`` times the team's reward of each step of a chain; 0 where the step does not end its turn."""
        episode_return(episode)  # raises where the episode is no chain
        steps = nodes_by_step(episode)
        teams = [nodes[0].candidates[0].team for nodes in steps]
        return [self.alpha * team if end else 0.0 for team, end in zip(teams, turn_ends(steps), strict=True)]

    def own_reward(self, node: Node) -> float:
        """The part of a message's reward that is its agent's own: local, length."""
        (candidate,) = node.candidates
        return candidate.reward - self.alpha * candidate.team


def _value(episode: Episode, step: CriticStep) -> float:
    value = step.nodes[0].value
    if value is None:
        raise CreditError(f"episode {episode.name}: a node has no value, so that no advantage can be estimated")
    return value
