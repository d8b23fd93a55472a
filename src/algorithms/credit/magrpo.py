"""MAGRPO and its kin: the returns of joint actions (arXiv 2508.04652; CoMLRL)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from statistics import fmean

from ...experience import Episode, JointAction, Node
from .base import CreditError, GroupRelative, Share
from .baselines import Baseline


class Magrpo(GroupRelative):
    """A = R - mean of R over the node's joint actions, the same for all agents; no std (section 4, equations 1 and 2).

    R of a joint action is its reward and ``gamma`` times the mean of what the team earns from the joint actions that
    follow it: the return-to-go, averaged over the tree (``gamma`` 1 in the paper).  What later messages earn by
    themselves (local, length) is left out, so that failing longer never pays; the paper has no such rewards.  Where
    only the best joint action went on, the others have no future to compare: then R is the reward alone (the paper's
    first version).  A candidate's R is the mean over the joint actions that hold it; under ``joint=aligned`` there is
    one.  In the loss every node weighs the same, so that the K times as many nodes of a later turn weigh more together
    (as in CoMLRL).

    Other baselines b make A = R - b its kin: ``none`` MAREINFORCE, ``leave_one_out`` MARLOO, ``max`` MAReMax.
    """

    one_prompt_per_group = True
    topologies = ("joint",)

    def __init__(
        self, *, gamma: float = 1.0, baseline: Baseline = "mean", normalise: bool = False, std_floor: float = 1e-6
    ) -> None:
        super().__init__(baseline=baseline, normalise=normalise, std_floor=std_floor)
        if not 0 <= gamma <= 1:
            raise ValueError(f"algorithm.credit.gamma must be in [0, 1], got {gamma}")
        self.gamma = gamma

    def key(self, node: Node) -> Hashable:
        return (node.task_id, node.agent, node.path)

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        values: dict[tuple[int, int], list[float]] = {}
        branches = episode.branches
        for edges in branches.values():
            if any(edge.reward is None for edge in edges):
                raise CreditError(f"episode {episode.name}: the sampler gave a joint action no reward")
            for edge, value in zip(edges, self.returns(edges, branches), strict=True):
                for place in edge.members.values():
                    values.setdefault(place, []).append(value)
        for (node, candidate), found in values.items():
            where = episode.nodes[node]
            yield self.key(where), Share(fmean(found), (where.candidates[candidate],))

    def returns(self, edges: list[JointAction], branches: dict[int, list[JointAction]]) -> list[float]:
        """R of the joint actions of one node."""
        rewards = [edge.reward or 0.0 for edge in edges]
        if any(edge.child is None and edge.outcome is None for edge in edges):
            return rewards
        return [reward + self._later(edge, branches) for edge, reward in zip(edges, rewards, strict=True)]

    def _later(self, edge: JointAction, branches: dict[int, list[JointAction]]) -> float:
        """What the team earns after ``edge``, discounted."""
        if edge.child is None:
            return 0.0
        return self.gamma * fmean(_team(later) + self._later(later, branches) for later in branches[edge.child])


def _team(edge: JointAction) -> float:
    """The team's part of the reward: all of it where the sampler tells no parts."""
    return (edge.reward if edge.team is None else edge.team) or 0.0
