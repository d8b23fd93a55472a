"""Dr.MAS: mean and deviation per agent (arXiv 2602.08847)."""

from __future__ import annotations

from collections.abc import Hashable

from ...experience import Node
from .grpo import MasGrpo


class DrMas(MasGrpo):
    """A = (R - mu_k) / sigma_k: mean and deviation over the messages of agent k alone in the task's K team episodes.

    R is the return of the message's episode.  With one baseline for all agents (:class:`.grpo.MasGrpo`) the gradient of
    an agent whose messages are distributed differently over good and bad episodes is inflated; agent-wise statistics
    bound it.
    """

    def key(self, node: Node) -> Hashable:
        return (node.task_id, node.agent)
