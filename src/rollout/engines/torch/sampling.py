"""Drawing tokens: temperature, truncation, inverse-CDF sampling and the log-probabilities of what was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....experience import Sampling

_MASK64 = (1 << 64) - 1


def uniforms(seed: int, row: int, count: int) -> list[float]:
    """``count`` draws from [0, 1) that depend on nothing but (``seed``, ``row``): a counter-based generator."""
    key = np.array([seed & _MASK64, row & _MASK64], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count).tolist()


@dataclass(frozen=True)
class Knobs:
    """The sampling of every row of a batch as tensors; None keeps what no row asks for off the common path.

    ``temperature`` (B, 1) float64, 1 where greedy; None if all are 1.  ``greedy`` (B,) bool; None if no row is.
    ``top_k`` (B, 1) int64, V where off; None if off everywhere.  ``top_p`` (B, 1) float64; None if all are 1.
    """

    temperature: Tensor | None
    greedy: Tensor | None
    top_k: Tensor | None
    top_p: Tensor | None

    @classmethod
    def of(cls, samplings: Sequence[Sampling], vocabulary: int, device: torch.device) -> Knobs:
        """The knobs of rows with these samplings over a vocabulary of this size."""

        def column(values: list[float] | list[int]) -> Tensor:
            dtype = torch.float64 if isinstance(values[0], float) else torch.int64
            return torch.tensor(values, dtype=dtype, device=device)[:, None]

        temperature = [float(s.temperature or 1) for s in samplings]
        greedy = [s.temperature == 0 for s in samplings]
        top_k = [min(s.top_k or vocabulary, vocabulary) for s in samplings]
        top_p = [float(s.top_p) for s in samplings]
        return cls(
            column(temperature) if any(t != 1 for t in temperature) else None,
            torch.tensor(greedy, device=device) if any(greedy) else None,
            column(top_k) if any(k < vocabulary for k in top_k) else None,
            column(top_p) if any(p < 1 for p in top_p) else None,
        )


def distribution(logits: Tensor, knobs: Knobs) -> Tensor:
    """Log-probabilities (B, V), nats, -inf where truncated, of what the rows sample from; greedy rows are not special.

    The order is temperature, top-k, top-p.  ``logits`` (B, V) float32 or float64, finite.  Top-k keeps ties with the
    k-th logit; top-p keeps the smallest set of most likely tokens whose mass reaches ``top_p``.
    """
    if knobs.temperature is not None:
        # From 0 downwards, so that a tiny temperature cannot overflow.
        logits = (logits - logits.amax(-1, keepdim=True)) / knobs.temperature.to(logits.dtype)
    if knobs.top_k is not None:
        least = logits.sort(dim=-1, descending=True).values.gather(1, knobs.top_k - 1)
        logits = logits.masked_fill(logits < least, float("-inf"))
    if knobs.top_p is not None:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        mass = ordered.softmax(-1)
        outside = mass.cumsum(-1) - mass >= knobs.top_p
        logits = logits.masked_fill(torch.zeros_like(outside).scatter_(1, order, outside), float("-inf"))
    return logits.log_softmax(-1)


def draw(logits: Tensor, knobs: Knobs, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """One token a row: (ids (B,) int64, log-probs (B,) nats under :func:`distribution`; 0 for a greedy row).

    ``logits`` (B, V) of any float type, finite; ``uniform`` (B,) float64 in [0, 1).  Inverse-CDF sampling, so a row's
    token is a function of its logits and its uniform alone.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logprobs = distribution(logits, knobs)
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    # Strictly below the total, so that the search never runs past the last token of positive probability.
    point = torch.minimum(uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, point, right=True)
    chosen = logprobs.gather(1, tokens)
    if knobs.greedy is not None:
        tokens = torch.where(knobs.greedy[:, None], logits.argmax(-1, keepdim=True), tokens)
        chosen = torch.where(knobs.greedy[:, None], torch.zeros_like(chosen), chosen)
    return tokens[:, 0], chosen[:, 0]
