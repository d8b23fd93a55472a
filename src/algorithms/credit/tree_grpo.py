"""Tree-GRPO: messages judged by the outcomes of all episodes that go through them (arXiv 2509.21240)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ...experience import Candidate, Episode, JointAction, Node, Outcome, Weighting
from .base import GroupRelative, Share

LeafValue = Literal["success", "team_return"]


@dataclass(kw_only=True, eq=False)
class TreeGrpo(GroupRelative):
    """A = A^tree + A^task: the outcome of an episode, compared with the leaves of its tree (intra-tree) and with those
    of all trees of its task (inter-tree), both as in GRPO.  A message gets the mean of A over the leaves below it.

    With v the mean outcome of the leaves below a message, that is (v - mean) / std within its tree, plus the same over
    the task.  Messages before a tree's first branch have all its leaves below them, and A^tree = 0; a tree with one
    leaf has nothing to compare, and A^tree = 0 too.  The outcome is the team's ``success``, 0 or 1, or its
    ``team_return``; rewards of single messages are not read.
    """

    one_prompt_per_group = False
    topologies = ("forest",)

    value: LeafValue = "success"
    weight: Weighting = "episode"

    def key(self, node: Node) -> Hashable:
        return node.task_id

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        task = episode.task.task_id
        for tree, path, outcome in leaves(episode):
            value = float(outcome.success if self.value == "success" else outcome.team_return)
            candidates = candidates_of(episode, path)
            yield (task, tree), Share(value, candidates)
            yield task, Share(value, candidates)

    def __call__(self, episodes: Sequence[Episode]) -> None:
        super().__call__(episodes)  # the sum over the leaves
        for episode in episodes:
            paths = [candidates_of(episode, path) for _, path, _ in leaves(episode)]
            below = Counter(candidate for path in paths for candidate in path)
            for _, candidate in episode.candidates():
                candidate.advantage = (candidate.advantage or 0.0) / below[candidate]


def leaves(episode: Episode) -> Iterator[tuple[int, list[JointAction], Outcome]]:
    """(Tree, joint actions from the start on, outcome) of each leaf; a tree begins with a joint action of the root."""
    branches = episode.branches

    def below(edge: JointAction) -> Iterator[tuple[list[JointAction], Outcome]]:
        if edge.outcome is not None:
            yield [edge], edge.outcome
        elif edge.child is not None:
            for later in branches[edge.child]:
                for path, outcome in below(later):
                    yield [edge, *path], outcome

    for tree, first in enumerate(branches.get(0, [])):
        for path, outcome in below(first):
            yield tree, path, outcome


def candidates_of(episode: Episode, path: Sequence[JointAction]) -> list[Candidate]:
    """The messages of an episode's joint actions."""
    return [episode.nodes[node].candidates[c] for edge in path for node, c in edge.members.values()]
