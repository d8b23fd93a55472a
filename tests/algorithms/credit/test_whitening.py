"""Normalisation over an iteration: values worked out by hand, each policy by itself, and what stays exactly 0."""

from math import sqrt

import pytest

from troupe.algorithms.credit.whitening import whiten
from troupe.experience import Candidate, Completion


def candidate(advantage: float, policy: str = "policy") -> Candidate:
    return Candidate(Completion((1,), (-0.5,), "U", "stop", policy, 0), 0.0, 0.0, 0.0, advantage=advantage)


def test_whitening_counts_tokens() -> None:
    # Tokens: 2 two times, -1 six times: mean (4 - 6) / 8 = -0.25; squares 2 * 5.0625 + 6 * 0.5625 = 13.5; / 8 = 1.6875
    # std 1.299038105677; 2.25 / std = 1.732050807569; -0.75 / std = -0.577350269190
    both = [candidate(2), candidate(-1)]
    whiten(both, [2, 6], 0.0)
    assert [c.advantage for c in both] == pytest.approx([1.732050807569, -0.577350269190], abs=1e-12)


def test_whitening_equal_advantages_gives_zero() -> None:
    both = [candidate(0.1) for _ in range(3)]
    whiten(both, [1, 5, 2], 0.0)
    assert [c.advantage for c in both] == [0.0, 0.0, 0.0]


def test_each_policy_is_normalised_by_itself() -> None:
    # a: 2, 0, one token each: mean 1, std 1.  b: 11 once, 9 on three tokens: mean 38 / 4 = 9.5,
    # squares (2.25 + 3 * 0.25) / 4 = 0.75.
    mixed = [candidate(2, "a"), candidate(11, "b"), candidate(0, "a"), candidate(9, "b")]
    whiten(mixed, [1, 1, 1, 3], 0.0)
    expected = [1, 1.5 / sqrt(0.75), -1, -0.5 / sqrt(0.75)]
    assert [c.advantage for c in mixed] == pytest.approx(expected, abs=1e-12)


def test_equal_values_of_one_policy_are_exactly_0_beside_another() -> None:
    mixed = [candidate(0.1, "a"), candidate(3, "b"), candidate(0.1, "a"), candidate(1, "b")]
    whiten(mixed, [3, 1, 5, 1], 0.0)
    assert [c.advantage for c in mixed] == [0.0, 1.0, 0.0, -1.0]


def test_without_a_shift_0_stays_0() -> None:
    # Mean square (2 * .25 + .25 + 5 * 0) / 8 = 0.09375.
    some = [candidate(0.5, "a"), candidate(-0.5, "a"), candidate(0, "a")]
    whiten(some, [2, 1, 5], 0.0, shift=False)
    assert [c.advantage for c in some] == [*(pytest.approx(v / sqrt(0.09375), abs=1e-12) for v in (0.5, -0.5)), 0.0]
