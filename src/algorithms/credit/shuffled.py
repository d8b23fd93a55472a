"""A control: AT-GRPO with advantages that are unrelated to their candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ...experience import Episode, Weighting
from .at_grpo import AtGrpo
from .base import Baseline


class ShuffledAtGrpo(AtGrpo):
    """AT-GRPO's advantages, randomly permuted over all candidates of an iteration.

    Their distribution, and so the size of the updates, stays the same; their relation to the candidates is lost.  A
    metric that still rises under this rule is not learnt from rewards.
    """

    def __init__(
        self,
        *,
        baseline: Baseline = "mean",
        normalise: bool = True,
        std_floor: float = 1e-6,
        weight: Weighting = "message",
        seed: int = 0,
    ) -> None:
        super().__init__(baseline=baseline, normalise=normalise, std_floor=std_floor, weight=weight)
        self._rng = Random(f"shuffled/{seed}")

    def state_dict(self) -> dict[str, Any]:
        version, internal, gauss = self._rng.getstate()
        return {"rng": [version, list(internal), gauss]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        version, internal, gauss = state["rng"]
        self._rng.setstate((version, tuple(internal), gauss))

    def __call__(self, episodes: Sequence[Episode]) -> None:
        super().__call__(episodes)
        candidates = [candidate for episode in episodes for _, candidate in episode.candidates()]
        advantages = [candidate.advantage for candidate in candidates]
        self._rng.shuffle(advantages)
        for candidate, advantage in zip(candidates, advantages, strict=True):
            candidate.advantage = advantage
