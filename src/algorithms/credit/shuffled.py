"""Controls: a rule's advantages, unrelated to their candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ...experience import Episode
from .at_grpo import AtGrpo
from .base import CreditRule
from .magrpo import Magrpo


class Shuffled(CreditRule):
    """The advantages of the rule that it is mixed into, randomly permuted over all candidates of an iteration.

    Their distribution, and so the size of the updates, stays the same; their relation to the candidates is lost.  A
    metric that still rises is not learnt from rewards.
    """

    def __init__(self, *, seed: int = 0, **common: Any) -> None:
        super().__init__(**common)
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


class ShuffledAtGrpo(Shuffled, AtGrpo):
    """AT-GRPO's advantages, permuted."""


class ShuffledMagrpo(Shuffled, Magrpo):
    """MAGRPO's advantages, permuted."""
