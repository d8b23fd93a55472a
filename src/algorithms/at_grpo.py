"""AT-GRPO's agent- and turn-wise advantages (PettingLLMs, arXiv 2510.11062, Algorithm 1 and equation 3)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import fmean, stdev

from ..experience import Node
from .base import CreditRule


class AtGrpo(CreditRule):
    """A = (r - mean r) / (std r + ``std_floor``) over the K candidates of one (task, agent, turn).

    The standard deviation is the unbiased one; where all rewards are equal the advantages are 0.  The papers have
    ``std_floor`` 1e-6.  A larger floor keeps small differences in progress from weighing as much as success against
    failure.  ``normalise=false`` leaves the division out.
    """

    one_prompt_per_group = True

    def __init__(self, *, normalise: bool = True, std_floor: float = 1e-6) -> None:
        if std_floor < 0:
            raise ValueError(f"algorithm.credit.std_floor must be >= 0, got {std_floor}")
        self.normalise, self.std_floor = normalise, std_floor

    def key(self, node: Node) -> Hashable:
        return (node.task_id, node.agent, node.turn)

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        if len(set(rewards)) == 1:
            return [0.0] * len(rewards)
        mean = fmean(rewards)
        scale = stdev(rewards) + self.std_floor if self.normalise else 1.0
        return [(reward - mean) / scale for reward in rewards]

    def check(self, k: int) -> None:
        if k < 2:
            raise ValueError(
                f"algorithm.sampler.k={k}: AT-GRPO compares the K candidates of a node with each other, so K must be "
                "at least 2" + (" (the standard deviation of one reward is undefined)" if self.normalise else "")
            )
