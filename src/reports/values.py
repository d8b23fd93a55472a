"""Which values of a metric can be drawn: files may hold anything."""

from __future__ import annotations

import math
from typing import TypeGuard


def numeric(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def interval(value: object) -> tuple[float, float] | None:
    """(Low, high) where ``value`` is a pair of finite numbers."""
    if isinstance(value, list) and len(value) == 2 and all(map(numeric, value)):
        return value[0], value[1]
    return None
