"""Values that can be drawn."""

import math

import pytest

from troupe.reports.values import interval, numeric


@pytest.mark.parametrize(
    ("value", "drawable"),
    [(1, True), (0.5, True), (math.nan, False), (math.inf, False), (10**400, False), ("1", False), (None, False)],
)
def test_numbers_are_finite(value: object, drawable: bool) -> None:
    assert numeric(value) is drawable


def test_an_interval_is_a_pair_of_numbers() -> None:
    assert interval([0.25, 0.5]) == (0.25, 0.5)
    for value in ([0.25], [0.25, "x"], [math.nan, 1], None, 0.5):
        assert interval(value) is None
