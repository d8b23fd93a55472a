"""Shares and means with their intervals, and paired comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import fmean

import numpy as np
from scipy.stats import binomtest, bootstrap, sem, t


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share (Wilson 1927), by scipy."""
    interval = binomtest(successes, trials).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean of ``values``, one per seed, by Student's t with n - 1 degrees of freedom; None for
    fewer than two values.

    It is not cut to the range of the values: the interval of a mean share may reach beyond 1.
    """
    if len(values) < 2:
        return None
    half_width = float(t.ppf(0.975, len(values) - 1) * sem(values))
    return fmean(values) - half_width, fmean(values) + half_width


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """The unbiased estimate, from ``samples`` of which ``successes`` succeeded, of the probability that at least one of
    ``k`` succeeds: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374, equation 1).

    Raises ``ValueError`` where ``k`` is not in [1, ``samples``] or ``successes`` not in [0, ``samples``].
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {max(k, 1)} samples per task and k of at least 1, got {samples}")
    if not 0 <= successes <= samples:
        raise ValueError(f"{successes} successes among {samples} samples")
    return 1 - comb(samples - successes, k) / comb(samples, k)


def bootstrap_interval(values: Sequence[float], resamples: int = 4000, seed: int = 0) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean of ``values``, one per task, by scipy.

    Tasks are drawn with replacement; ``seed`` fixes the draws.  Values that are all equal give an interval without
    width: there is nothing to draw between.  Raises ``ValueError`` where there are none.
    """
    if not values:
        raise ValueError("an interval of no values")
    if min(values) == max(values):
        return float(values[0]), float(values[0])
    result = bootstrap(
        (np.asarray(values, dtype=np.float64),),
        np.mean,
        n_resamples=resamples,
        batch=max(1, 2**22 // len(values)),  # at most 32 MiB of draws at a time
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(result.low), float(result.high)


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided p-value of McNemar's exact test (McNemar 1947): whether tasks that only the first solved are as
    frequent as tasks that only the second solved.  1 where no task tells the two apart.
    """
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0
