"""Counters of engines."""

from troupe.rollout.engines.base import drain_counters


class CountingEngine:
    def __init__(self, **counters: float) -> None:
        self.counters = counters

    def drain(self) -> dict[str, float]:
        counters, self.counters = self.counters, {}
        return counters


class PlainEngine:
    """Counts nothing."""


def test_counters_are_summed_and_drained() -> None:
    engines = [CountingEngine(retries=2, restarts=0), PlainEngine(), CountingEngine(retries=1, cost=0.5)]
    assert drain_counters(engines) == {"retries": 3, "restarts": 0, "cost": 0.5}
    assert drain_counters(engines) == {}
