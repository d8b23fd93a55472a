"""Mismatch statistics: how far the policy that learns is from the one that sampled, by agent and turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

Place = tuple[str, int]
"""Agent and turn of a message."""

SUMS = ("tokens", "abs", "k1", "k3", "units", "weight", "weight2", "corrected", "samples")
_DECADES = 10 ** torch.linspace(-6, 1, 57, dtype=torch.float64)
EDGES = torch.cat([-_DECADES.flip(0), _DECADES])
"""Of a histogram of log ratios, in nats: eight bins per decade on each side of 0, so that a quantile is within 15 % of
its distance from 0; less than 1e-6 is 0.
"""
QUANTILES = {"ratio_p01": 0.01, "ratio_p50": 0.5, "ratio_p99": 0.99}


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
        self._edges = EDGES.to(device)
        self._histogram = torch.zeros(len(self.places), len(EDGES) + 1, dtype=torch.float64, device=device)

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
        bins = index[:, None] * self._histogram.shape[1] + torch.bucketize(ratio.log(), self._edges)
        each = units.double() if counts is None else units * counts[:, None].double()
        self._histogram.view(-1).index_add_(0, bins.flatten(), each.flatten())
        self._largest.scatter_reduce_(0, index, drift.abs().amax(dim=1), "amax")

    def reduce(self, add_up: Callable[[Tensor], None], maximise: Callable[[Tensor], None]) -> None:
        """Put together with those of other processes, by functions that add up and maximise a tensor in place."""
        add_up(self._sums)
        add_up(self._histogram)
        maximise(self._largest)

    def metrics(self) -> dict[str, float]:
        """By ``mismatch/AGENT/NAME`` and ``mismatch/AGENT/turnT/NAME``, for those that had tokens:

        ``mean_abs_nats`` and ``max_abs_nats`` of d; ``k1_nats`` and ``k3_nats``, two estimates of KL(behaviour ||
        learner) (http://joschu.net/blog/kl-approx.html); ``ess_ratio``, the effective sample size of the importance
        ratios, (sum w)^2 / sum w^2, over their number; ``ratio_p01``, ``ratio_p50`` and ``ratio_p99``, their quantiles
        to within a bin of :data:`EDGES`; ``corrected_share``, the share of them that truncated importance sampling
        truncated or masked; ``samples``, the number of candidates behind these figures.  Where the candidates were
        drawn from more, ``max_abs_nats`` is that of those drawn, and the others are estimates for all.
        """
        metrics: dict[str, float] = {}
        for agent in sorted({agent for agent, _ in self.places}):
            own = [index for index, place in enumerate(self.places) if place[0] == agent]
            metrics |= self._metrics(f"mismatch/{agent}/", own)
            for index in own:
                metrics |= self._metrics(f"mismatch/{agent}/turn{self.places[index][1]}/", [index])
        return metrics

    def of(self, prefix: str, places: Iterable[Place]) -> dict[str, float]:
        """The same of ``places`` together, with ``prefix`` before each name."""
        return self._metrics(prefix, [self._index[place] for place in places])

    def _metrics(self, prefix: str, places: Sequence[int]) -> dict[str, float]:
        """Of the ``places`` together, by their indices."""
        sums = dict(zip(SUMS, self._sums[places].sum(dim=0).tolist(), strict=True))
        if not sums["tokens"]:
            return {}
        values = {
            "mean_abs_nats": sums["abs"] / sums["tokens"],
            "max_abs_nats": self._largest[places].max().item(),
            "k1_nats": sums["k1"] / sums["tokens"],
            "k3_nats": sums["k3"] / sums["tokens"],
            "ess_ratio": sums["weight"] ** 2 / sums["weight2"] / sums["units"] if sums["weight2"] else 0.0,
            **_quantiles(self._histogram[places].sum(dim=0)),
            "corrected_share": sums["corrected"] / sums["units"],
            "samples": sums["samples"],
        }
        return {f"{prefix}{name}": value for name, value in values.items()}


def _quantiles(histogram: Tensor) -> dict[str, float]:
    """:data:`QUANTILES` of the ratios, from the ``histogram`` of their logarithms: the middles of the bins."""
    counts = histogram.cpu()
    middles = torch.cat([EDGES[:1], (EDGES[1:] + EDGES[:-1]) / 2, EDGES[-1:]])
    levels = torch.tensor(list(QUANTILES.values()), dtype=torch.float64) * counts.sum()
    bins = torch.searchsorted(counts.cumsum(0), levels).clamp(max=len(EDGES))
    return dict(zip(QUANTILES, middles[bins].exp().tolist(), strict=True))
