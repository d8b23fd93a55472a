"""Mismatch statistics: how far the policy that learns is from the one that sampled, by agent and turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

Place = tuple[str, int]
"""Agent and turn of a message."""

SUMS = ("tokens", "abs", "k1", "k3", "units", "weight", "weight2", "corrected", "samples")


class MismatchStats:
    """Sums over the completion tokens of an update, of the drift d = learner's log-probability at the update's start
    less the behaviour policy's, in nats.

    ``places`` are all that :meth:`add` will see.  The sums lie in float64 on ``device``.
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
        counts: Tensor | None = None,
    ) -> None:
        """A micro-batch: ``places`` of its B candidates, ``drift`` (B, C), 0 where ``mask`` (B, C) is False, and the
        importance ``ratio`` of each token (B, C) or completion (B, 1) with whether it was truncated or masked.

        ``counts`` (B,): how many candidates each stands for, where they were drawn from more; 1 by default.
        """
        drift, ratio = drift.double(), ratio.double()
        units = mask if ratio.shape == mask.shape else mask.any(dim=1, keepdim=True)
        weight = torch.where(units, ratio, 0.0)
        k3 = drift.exp() - 1 - drift
        columns = (mask, drift.abs(), -drift, k3, units, weight, weight.square(), corrected & units)
        rows = torch.stack([column.sum(dim=1).double() for column in columns], dim=1)
        if counts is not None:
            rows *= counts[:, None]
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
        index = torch.tensor([self._index[place] for place in places], device=rows.device)
        self._sums.index_add_(0, index, rows)
        self._largest.scatter_reduce_(0, index, drift.abs().amax(dim=1), "amax")

    def reduce(self, add_up: Callable[[Tensor], None], maximise: Callable[[Tensor], None]) -> None:
        """Put together with those of other processes, by functions that add up and maximise a tensor in place."""
        add_up(self._sums)
        maximise(self._largest)

    def metrics(self) -> dict[str, float]:
        """By ``mismatch/AGENT/turnT/NAME``, for the places that had tokens:

        ``mean_abs_nats`` and ``max_abs_nats`` of d; ``k1_nats`` and ``k3_nats``, two estimates of KL(behaviour ||
        learner) (http://joschu.net/blog/kl-approx.html); ``ess_ratio``, the effective sample size of the importance
        ratios, (sum w)^2 / sum w^2, over their number; ``corrected_share``, the share of them that truncated importance
        sampling truncated or masked; ``samples``, the number of candidates behind these figures.  Where the candidates
        were drawn from more, ``max_abs_nats`` is that of those drawn, and the others are estimates for all.
        """
        metrics: dict[str, float] = {}
        for (agent, turn), row, largest in zip(self.places, self._sums.tolist(), self._largest.tolist(), strict=True):
            sums = dict(zip(SUMS, row, strict=True))
            if not sums["tokens"]:
                continue
            values = {
                "mean_abs_nats": sums["abs"] / sums["tokens"],
                "max_abs_nats": largest,
                "k1_nats": sums["k1"] / sums["tokens"],
                "k3_nats": sums["k3"] / sums["tokens"],
                "ess_ratio": sums["weight"] ** 2 / sums["weight2"] / sums["units"] if sums["weight2"] else 0.0,
                "corrected_share": sums["corrected"] / sums["units"],
                "samples": sums["samples"],
            }
            metrics |= {f"mismatch/{agent}/turn{turn}/{name}": value for name, value in values.items()}
        return metrics
