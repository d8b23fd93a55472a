"""REINFORCE++ and its variant with a group baseline (arXiv 2501.03262)."""

from __future__ import annotations

from collections.abc import Sequence

from ...experience import Episode
from .baselines import Baseline, whiten
from .grpo import Grpo


class ReinforcePP(Grpo):
    """Advantages normalised over the whole iteration, not within a prompt's few samples.

    REINFORCE++ (``baseline=none``): A = R, the episode's return on each of its messages; then
    A <- (A - mean A) / (std A + ``std_floor``) over all tokens of the iteration's batch (section 3, advantage
    normalisation).  One episode a task is enough.

    REINFORCE++-baseline (``baseline=mean``): A = R - mean over the task's K episodes first, then the same
    normalisation.  (The authors' KL penalty is the objective's: ``kl_in=reward`` with k1, and k2 in the loss.)
    """

    def __init__(self, *, baseline: Baseline = "none", std_floor: float = 1e-6) -> None:
        super().__init__(baseline=baseline, normalise=False, std_floor=std_floor)

    def __call__(self, episodes: Sequence[Episode]) -> None:
        super().__call__(episodes)
        candidates = [candidate for episode in episodes for _, candidate in episode.candidates()]
        whiten(candidates, [len(candidate.completion.token_ids) for candidate in candidates], self.std_floor)
