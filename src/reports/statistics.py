"""Intervals."""

from __future__ import annotations

from scipy.stats import binomtest


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share (Wilson 1927), by scipy."""
    interval = binomtest(successes, trials).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)
