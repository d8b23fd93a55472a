"""REINFORCE++ and its variant with a group baseline (arXiv 2501.03262)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ...errors import NotNegative
from ...experience import Candidate, Episode
from .base import Baseline, whiten
from .checks import CreditError
from .grpo import Grpo


@dataclass(kw_only=True, eq=False)
class ReinforcePP(Grpo):
    """Advantages normalised over the whole iteration, not within a prompt's few samples; each policy's by themselves,
    since the normalisation of one policy must not depend on what another one earns.

    REINFORCE++ (``baseline=none``): A = R, the episode's return on each of its messages; then
    A <- (A - mean A) / (std A + ``std_floor``) over all tokens of the policy in the iteration (section 3, advantage
    normalisation).  One episode per task is enough.

    REINFORCE++-baseline (``baseline=mean``): A = R - mean over the task's K episodes; then
    A <- A / (std A + ``std_floor``), with the mean of A^2 over those tokens as variance.  The paper's formula subtracts
    the iteration's mean here too, which over samples is 0, since every group is centred: only rounding, and the
    weighting by length, make it differ from 0.  It is left out (as in ms-swift), so that a candidate without an
    advantage, as in a group of equal returns, keeps exactly 0, and so that no common amount is added to every message
    because long answers failed.

    Where all values that are normalised are equal, every advantage is exactly 0.

    With ``kl`` > 0, the objective's, the value of token t of a message is R - ``kl`` * sum of k1 from t on (section 3,
    token-level KL penalty), before the normalisation; k1 = log pi - log reference at the sampled token, pi the policy
    that sampled it.  The KL penalty of REINFORCE++-baseline is k2 in the objective's loss.
    """

    baseline: Baseline = "none"
    normalise: bool = field(default=False, init=False)
    kl: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kl and self.baseline != "none":
            raise ValueError(
                f"algorithm.credit.kl={self.kl} is for baseline=none (REINFORCE++), got {self.baseline}; with a "
                "baseline give 0, and algorithm.objective.kl_in=loss"
            )

    def __call__(self, episodes: Sequence[Episode]) -> None:
        super().__call__(episodes)
        candidates = [candidate for episode in episodes for _, candidate in episode.candidates()]
        if self.kl:
            for candidate in candidates:
                candidate.penalties = self._penalties(candidate)
        lengths = [len(candidate.completion.token_ids) for candidate in candidates]
        whiten(candidates, lengths, self.std_floor, shift=self.baseline == "none")

    def _penalties(self, candidate: Candidate) -> tuple[float, ...]:
        """Of each token, ``kl`` times the sum of k1 from it on."""
        if candidate.reference_logprobs is None:
            raise CreditError("algorithm.credit.kl needs the log-probabilities of the reference, and there are none")
        pairs = zip(candidate.completion.logprobs, candidate.reference_logprobs, strict=True)
        drifts = [logprob - reference for logprob, reference in pairs]
        return tuple(self.kl * total for total in accumulate(reversed(drifts)))[::-1]
