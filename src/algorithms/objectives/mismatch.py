"""The mismatch ledger: how far the policy that learns is from the one that sampled, by agent and turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

Place = tuple[str, int]
"""Agent and turn of a message."""

SUMS = ("tokens", "abs", "k1", "k3", "units", "weight", "weight2", "corrected", "samples")


class Ledger:
    """Sums over the completion tokens of an update, of the drift d = learner's log-probability at the update's start
    less the behaviour policy's, in nats.

    ``places`` are all that :meth:`add` will be given.  The sums lie in float64 on ``device``.
    """

    def __init__(self, places: Iterable[Place], device: torch.device) -> None:
        self.places = sorted(set(places))
        self._index = {place: index for index, place in enumerate(self.places)}
        self._sums = torch.zeros(len(self.places), len(SUMS), dtype=torch.float64, device=device)
        self._largest = torch.zeros(len(self.places), dtype=torch.float64, device=device)

    def add(
        self,
        places: Sequence[Place],
        drift: Tensor,
        mask: Tensor,
        ratio: Tensor,
        corrected: Tensor,
        stands_for: Tensor | None = None,
    ) -> None:
        """A micro-batch: ``places`` of its B candidates, ``drift`` (B, C), 0 where ``mask`` (B, C) is False, and the
        importance ``ratio`` of each token (B, C) or completion (B, 1) with whether it was truncated or masked.

        ``stands_for`` (B,): how many candidates each stands for, where they were drawn from more; 1 by default.
        """
        drift, ratio = drift.double(), ratio.double()
        units = mask if ratio.shape == mask.shape else mask.any(dim=1, keepdim=True)
        weight = torch.where(units, ratio, 0.0)
        k3 = drift.exp() - 1 - drift
        columns = (mask, drift.abs(), -drift, k3, units, weight, weight.square(), corrected & units)
        rows = torch.stack([column.sum(dim=1).double() for column in columns], dim=1)
        if stands_for is not None:
            rows *= stands_for[:, None]
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
        index = torch.tensor([self._index[place] for place in places], device=rows.device)
        self._sums.index_add_(0, index, rows)
        self._largest.scatter_reduce_(0, index, drift.abs().amax(dim=1), "amax")

    def reduce(self, total: Callable[[Tensor], None], largest: Callable[[Tensor], None]) -> None:
        """Put together with the ledgers of other processes, by what sums and maximises a tensor in place."""
        total(self._sums)
        largest(self._largest)

    def metrics(self) -> dict[str, float]:
        """By ``mismatch/AGENT/turnT/NAME``, for the places that had tokens:

        ``mean_abs_nats`` and ``max_abs_nats`` of d; ``k1_nats`` and ``k3_nats``, two estimates of KL(behaviour ||
        learner) (http://joschu.net/blog/kl-approx.html); ``effective_share``, the effective sample size of the
        importance ratios, (sum w)^2 / sum w^2, as a share of their number; ``corrected_share`` of them that truncated
        importance sampling truncated or masked; ``samples``, the number of candidates that all this rests on.  Where
        they were drawn from more, ``max_abs_nats`` is that of those drawn, the others are estimates for all.
        """
        found: dict[str, float] = {}
        for (agent, turn), row, most in zip(self.places, self._sums.tolist(), self._largest.tolist(), strict=True):
            sums = dict(zip(SUMS, row, strict=True))
            if not sums["tokens"]:
                continue
            values = {
                "mean_abs_nats": sums["abs"] / sums["tokens"],
                "max_abs_nats": most,
                "k1_nats": sums["k1"] / sums["tokens"],
                "k3_nats": sums["k3"] / sums["tokens"],
                "effective_share": sums["weight"] ** 2 / sums["weight2"] / sums["units"] if sums["weight2"] else 0.0,
                "corrected_share": sums["corrected"] / sums["units"],
                "samples": sums["samples"],
            }
            found |= {f"mismatch/{agent}/turn{turn}/{name}": value for name, value in values.items()}
        return found
