"""The steps of a chain, an episode without branches, and which of them end a turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...experience import Episode, Node


def nodes_by_step(episode: Episode) -> list[list[Node]]:
    """The nodes of each step of a chain: of the agents that act at once."""
    return [[episode.nodes[node] for node, _ in edge.members.values()] for edge in episode.edges]


def turn_ends(steps: Sequence[Sequence[Node]]) -> list[bool]:
    """Whether each of a chain's ``steps``, which are not empty, ends its turn: the last one, and those after which the
    turn is higher.  An episode's return has the team rewards of these steps.

    A lower turn does not end one: in a workflow the turn is the number of the agent's earlier calls, which falls where
    the next agent has called less.
    """
    turns = [nodes[0].turn for nodes in steps]
    return [*(later > turn for turn, later in pairwise(turns)), True]
