"""What the values of a group are compared with, and how the differences are scaled.

With the values v_1 ... v_K of one group:

=================  ===================================================================================================
``mean``           v - mean(v): GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1.2), without division Dr. GRPO (arXiv
                   2503.20783, equation 1) and MAGRPO (arXiv 2508.04652, section 4)
``leave_one_out``  v_i - mean of the others: RLOO (arXiv 2402.14740, section 3), MARLOO; K / (K - 1) times ``mean``
``max``            v - max(v): MAReMax (CoMLRL), after ReMax (arXiv 2310.10505), whose baseline is the greedy answer's
                   reward; no advantage is above 0
``none``           v: REINFORCE, MAREINFORCE
=================  ===================================================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Literal, get_args

from ...experience import Candidate

log = logging.getLogger(__name__)

Baseline = Literal["mean", "leave_one_out", "max", "none"]


def check_baseline(baseline: Baseline, normalise: bool, std_floor: float) -> None:
    """Raise ``ValueError``, naming the key, for settings without sense; warn where two settings come to the same."""
    if baseline not in get_args(Baseline):
        known = ", ".join(get_args(Baseline))
        raise ValueError(f"algorithm.credit.baseline={baseline} is unknown; the baselines are {known}")
    if not isinstance(normalise, bool):
        raise ValueError(f"algorithm.credit.normalise must be true or false, got {normalise!r}")
    if std_floor < 0:
        raise ValueError(f"algorithm.credit.std_floor must be >= 0, got {std_floor}")
    if normalise and baseline == "none":
        raise ValueError(
            "algorithm.credit.normalise=true with baseline=none: a group of nearly equal values would have advantages "
            "without bound, since nothing is subtracted before the division; give normalise=false"
        )
    if normalise and baseline == "leave_one_out":
        log.warning(
            "algorithm.credit.normalise=true cancels what baseline=leave_one_out differs in: its advantages are "
            "K / (K - 1) times those of baseline=mean, a constant"
        )


def compared(values: Sequence[float], baseline: Baseline, normalise: bool, std_floor: float) -> list[float]:
    """The advantages within one group: each value minus its baseline, over the unbiased std + ``std_floor`` if
    ``normalise``.  Under every baseline but ``none`` they are exactly 0 where all values are equal.
    """
    if baseline == "none":
        return list(values)
    if len(set(values)) == 1:
        return [0.0] * len(values)
    count = len(values)
    reference = max(values) if baseline == "max" else fmean(values)
    scale = stdev(values) + std_floor if normalise else 1.0
    if baseline == "leave_one_out":
        scale *= (count - 1) / count
    return [(value - reference) / scale for value in values]


def whiten(candidates: Sequence[Candidate], lengths: Sequence[int], floor: float, *, shift: bool = True) -> None:
    """Scale the advantages of ``candidates`` over their tokens, each policy's by themselves.

    A <- (A - mean A) / (std A + ``floor``), each candidate counted ``lengths`` times; the biased std.  Without
    ``shift``, A <- A / (root of mean A^2 + ``floor``): for advantages that a group baseline has centred, 0 stays 0.

    Where a policy's advantages are all equal, they are exactly 0.
    """
    of: dict[str, list[tuple[Candidate, int]]] = {}
    for candidate, length in zip(candidates, lengths, strict=True):
        of.setdefault(candidate.completion.policy, []).append((candidate, length))
    for counted in of.values():
        found = _whitened([(c.advantage or 0.0, length) for c, length in counted], floor, shift)
        for (candidate, _), advantage in zip(counted, found, strict=True):
            candidate.advantage = advantage


def _whitened(counted: Sequence[tuple[float, int]], floor: float, shift: bool) -> list[float]:
    """The advantages of one policy, given with their lengths, scaled as :func:`whiten` says."""
    total = sum(n for _, n in counted)
    if len({a for a, _ in counted}) <= 1 or not total:
        return [0.0] * len(counted)
    mean = sum(n * a for a, n in counted) / total if shift else 0.0
    scale = sqrt(sum(n * (a - mean) ** 2 for a, n in counted) / total) + floor
    return [(a - mean) / scale if scale else 0.0 for a, _ in counted]
