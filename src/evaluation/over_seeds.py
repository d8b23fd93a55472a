"""What several seeds say together."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from scipy.stats import sem, t


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean by Student's t with n - 1 degrees of freedom; None for fewer than two values.

    It is not cut to the range of the values: that of a share may reach beyond 1.
    """
    if len(values) < 2:
        return None
    half = float(t.ppf(0.975, len(values) - 1) * sem(values))
    return fmean(values) - half, fmean(values) + half
