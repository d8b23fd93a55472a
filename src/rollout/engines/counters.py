"""Counters of engines: retries, restarts, prices, whatever a run reports of its engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .base import Counting, Engine


def drain_counters(engines: Iterable[Engine]) -> dict[str, float]:
    """What ``engines``, each named once, have counted since the last call, summed by metric."""
    totals: Counter[str] = Counter()
    for engine in engines:
        if isinstance(engine, Counting):
            totals.update(engine.drain())
    return dict(totals)
