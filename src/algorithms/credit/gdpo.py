"""GDPO: every reward component is normalised by itself (arXiv 2601.05242)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from typing import Literal

from ...experience import Candidate, Episode
from .at_grpo import AtGrpo
from .base import Share, whiten
from .checks import CreditError

COMPONENTS = ("team", "local", "overlong")


@dataclass(kw_only=True, eq=False)
class Gdpo(AtGrpo):
    """A = sum over components c of w_c (r_c - mean r_c) / (std r_c + ``std_floor``), in AT-GRPO's groups; then, with
    ``batch=true``, A <- (A - mean A) / (std A + ``std_floor``) over the policy's candidates in the iteration (equations
    4 to 6; the mean, which is 0, is not computed: see :func:`.base.whiten`).

    The components are the terms of the sampler's mix: what ``alpha`` weighs (``team``), the ``local`` reward, a
    message's own outcome with it where that is paid, and the ``overlong`` penalty.  Normalisation would cancel a factor
    on a component, so the factors of the mix go into the weights: w_team is ``weights.team`` times ``alpha``; without
    ``local``, w_local is 0; w_overlong (1, where ``weights`` do not name it) is without effect where nothing is
    penalised.  ``alpha`` and ``local`` are the sampler's.

    Why: if rewards are mixed before normalisation, the component with the largest spread dominates, and different
    combinations of rewards may get the same advantage.
    """

    weights: Mapping[str, float]
    alpha: float = 1.0
    local: bool = True
    batch: bool = True
    baseline: Literal["mean"] = field(init=False, default="mean")
    normalise: Literal[True] = field(init=False, default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not {"team", "local"} <= set(self.weights) <= set(COMPONENTS):
            raise ValueError(
                f"algorithm.credit.weights must weigh team and local, got {', '.join(self.weights) or 'nothing'} (it "
                "may weigh overlong, too)"
            )
        mix = {"team": self.alpha, "local": float(self.local), "overlong": 1.0}
        self.weights = {name: self.weights.get(name, 1.0) * mix[name] for name in COMPONENTS}

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        """Raises :class:`CreditError` for a reward that was mixed otherwise."""
        for node, candidate in episode.candidates():
            self._check_mix(episode, candidate)
            for name, weight in self.weights.items():
                if weight:
                    value = getattr(candidate, name) + candidate.own_outcome * (name == "local")
                    yield (self.key(node), name), Share(value, (candidate,), weight)

    def __call__(self, episodes: Sequence[Episode]) -> None:
        super().__call__(episodes)
        candidates = [candidate for episode in episodes for _, candidate in episode.candidates()]
        for candidate in candidates:  # None where no component has a weight
            candidate.advantage = candidate.advantage or 0.0
        if self.batch:
            whiten(candidates, [1] * len(candidates), self.std_floor, shift=False)

    def _check_mix(self, episode: Episode, candidate: Candidate) -> None:
        local = candidate.local + candidate.own_outcome
        mixed = self.alpha * candidate.team + self.local * local + candidate.overlong
        if not isclose(mixed, candidate.reward, rel_tol=1e-9, abs_tol=1e-9):
            raise CreditError(
                f"episode {episode.name}: a reward is {candidate.reward}, but with algorithm.credit.alpha={self.alpha} "
                f"and algorithm.credit.local={self.local} its components make {mixed}: alpha and local must be those "
                "of algorithm.sampler"
            )
