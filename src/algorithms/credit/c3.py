"""C3: contextual counterfactual credit (arXiv 2603.06859)."""

from __future__ import annotations

from dataclasses import dataclass

from .at_grpo import AtGrpo
from .base import Baseline


@dataclass(kw_only=True, eq=False)
class C3(AtGrpo):
    """A = v - mean of the others' v: leave-one-out over the K messages that one agent might have sent in one context.

    v is the outcome of the message when the episode is played from there to its end under the same policies and seeds,
    see :class:`...rollout.samplers.replay.ReplaySampler`.  A is the effect of this one message: what happened before it
    is the same for all K and cancels.
    """

    topologies = ("replay",)

    baseline: Baseline = "leave_one_out"
    normalise: bool = False
