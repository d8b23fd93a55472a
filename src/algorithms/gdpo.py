"""GDPO: every reward component is normalised by itself (arXiv 2601.05242)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from ..experience import Episode
from .at_grpo import AtGrpo
from .base import Share
from .baselines import whiten

COMPONENTS = ("team", "local")


class Gdpo(AtGrpo):
    """A = sum over components c of w_c (r_c - mean r_c) / (std r_c + ``std_floor``), in AT-GRPO's groups; then, with
    ``batch=true``, A <- (A - mean A) / (std A + ``std_floor``) over the iteration's candidates (equations 4 to 6).

    The components are the ``team`` and the ``local`` reward; ``weights`` are their w.  Mixed before normalisation, the
    one with the larger spread drowns the other, and different mixes may collapse into one advantage.
    """

    def __init__(self, *, weights: Mapping[str, float], batch: bool = True, std_floor: float = 1e-6) -> None:
        super().__init__(std_floor=std_floor)
        if set(weights) != set(COMPONENTS):
            raise ValueError(
                f"algorithm.credit.weights must weigh {' and '.join(COMPONENTS)}, got {', '.join(weights) or 'nothing'}"
            )
        self.weights, self.batch = dict(weights), batch

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        for node, candidate in episode.candidates():
            for name, weight in self.weights.items():
                yield (self.key(node), name), Share(getattr(candidate, name), (candidate,), weight)

    def __call__(self, episodes: Sequence[Episode]) -> None:
        super().__call__(episodes)
        if self.batch:
            candidates = [candidate for episode in episodes for _, candidate in episode.candidates()]
            whiten(candidates, [1] * len(candidates), self.std_floor, shift=False)
