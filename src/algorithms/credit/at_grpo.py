"""AT-GRPO's agent- and turn-wise advantages (PettingLLMs, arXiv 2510.11062, Algorithm 1 and equation 3)."""

from __future__ import annotations

from collections.abc import Hashable

from ...experience import Node
from .base import GroupRelative


class AtGrpo(GroupRelative):
    """Group-relative advantages over the K candidates of one (task, agent, turn), from their own rewards."""

    one_prompt_per_group = True
    topologies = ("tree",)

    def key(self, node: Node) -> Hashable:
        return (node.task_id, node.agent, node.turn)
