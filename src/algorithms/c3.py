"""C3: contextual counterfactual credit (arXiv 2603.06859)."""

from __future__ import annotations

from .at_grpo import AtGrpo
from .baselines import Baseline


class C3(AtGrpo):
    """A = v - mean of the others' v: leave-one-out over the K messages that one agent might have sent in one context.

    v is what came of the message when it was played on to the end under the same policies and seeds, see
    :class:`troupe.rollout.replay.ReplaySampler`.  It is the effect of this one message: what others did well or badly
    before it is the same for all K, and drops out.
    """

    topologies = ("replay",)

    def __init__(
        self, *, baseline: Baseline = "leave_one_out", normalise: bool = False, std_floor: float = 1e-6
    ) -> None:
        super().__init__(baseline=baseline, normalise=normalise, std_floor=std_floor)
