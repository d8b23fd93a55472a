"""Which values of a metric can be shown, files may hold anything; and how seconds are written."""

from __future__ import annotations

import sys
from typing import TypeGuard


def numeric(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a finite number."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max  # an int may be larger than any float


def interval(value: object) -> tuple[float, float] | None:
    """(Low, high) where ``value`` is a pair of finite numbers."""
    if isinstance(value, list) and len(value) == 2 and all(map(numeric, value)):
        return value[0], value[1]
    return None


def duration(seconds: float) -> str:
    """``50 ms``, ``26.9 s``, ``7 min 12 s``, ``3 h 5 min``."""
    if 0 < seconds < 0.9995:
        return f"{max(round(1000 * seconds), 1)} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
