"""MAGRPO and its variants: the returns of joint actions (arXiv 2508.04652; CoMLRL)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from statistics import fmean

from ...errors import Share as Fraction
from ...experience import Episode, JointAction, Node, Weighting
from .base import GroupRelative, Share
from .checks import CreditError


@dataclass(kw_only=True, eq=False)
class Magrpo(GroupRelative):
    """A = R - mean of R over the node's joint actions, the same for all agents; no std (section 4, equations 1 and 2).

    R of a joint action is its reward plus ``gamma`` times the mean, over the joint actions that follow it, of the
    team's return-to-go from there (``gamma`` 1 in the paper).  The own rewards of later messages (local, length) are
    left out, so that a longer failure never earns more; the paper has no such rewards.  Where only the best joint
    action was continued, the others have no future to compare: then R is the reward alone (the paper's first version).
    A candidate's R is the mean over the joint actions that contain it; under ``pairing=aligned`` there is one.

    ``weight=episode``: a node of turn t counts 1 / K^t, so that all turns weigh the same, as in the gradient of the
    expected return (equation 2).  ``weight=message``: every node counts the same, so that the K times as many nodes of
    a later turn weigh more together (CoMLRL).

    Other baselines b, A = R - b: ``none`` is MAREINFORCE, ``leave_one_out`` MARLOO, ``max`` MAReMax.
    """

    one_prompt_per_group = True
    topologies = ("joint",)

    gamma: Fraction = 1.0
    normalise: bool = False
    weight: Weighting = "episode"

    def key(self, node: Node) -> Hashable:
        return (node.task_id, node.agent, node.path)

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        values: dict[tuple[int, int], list[float]] = {}
        branches = episode.branches
        for edges in branches.values():
            if any(edge.reward is None for edge in edges):
                raise CreditError(f"episode {episode.name}: a joint action has no reward")
            for edge, value in zip(edges, self.returns(edges, branches), strict=True):
                for place in edge.members.values():
                    values.setdefault(place, []).append(value)
        for (index, candidate), returns in values.items():
            node = episode.nodes[index]
            yield self.key(node), Share(fmean(returns), (node.candidates[candidate],))

    def returns(self, edges: list[JointAction], branches: dict[int, list[JointAction]]) -> list[float]:
        """R of the joint actions of one node."""
        rewards = [edge.reward or 0.0 for edge in edges]
        if any(edge.child is None and edge.outcome is None for edge in edges):
            return rewards
        return [reward + self._later(edge, branches) for edge, reward in zip(edges, rewards, strict=True)]

    def _later(self, edge: JointAction, branches: dict[int, list[JointAction]]) -> float:
        """The team's mean return after ``edge``, discounted."""
        if edge.child is None:
            return 0.0
        return self.gamma * fmean(_team(later) + self._later(later, branches) for later in branches[edge.child])


def _team(edge: JointAction) -> float:
    """The team's part of the reward; all of it where the sampler does not split it."""
    return (edge.reward if edge.team is None else edge.team) or 0.0
