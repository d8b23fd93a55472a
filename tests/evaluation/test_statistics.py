"""Estimates and intervals against hand computation, enumeration and simulation."""

import math
from itertools import combinations

import numpy as np
import pytest

from troupe.evaluation.statistics import bootstrap_interval, mcnemar, pass_at_k, t_interval, wilson


def test_t_interval_by_hand() -> None:
    # Mean 2, standard deviation 1, t(0.975, 2) = 4.302653: half a width of 4.302653 / sqrt(3).
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-6)
    assert t_interval([0.5]) is None
    assert t_interval([]) is None


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 2, 2, 1 - 1 / 6),  # of the 6 pairs only the two failures together fail
        (5, 1, 3, 1 - 4 / 10),
        (10, 3, 1, 0.3),  # k = 1 is the share
        (3, 0, 3, 0.0),
        (3, 3, 1, 1.0),
        (6, 4, 3, 1.0),  # only two failed: no three fail
    ],
)
def test_pass_at_k_by_hand(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected)


def test_pass_at_k_is_the_share_of_subsets_with_a_success() -> None:
    for n in range(1, 8):
        for c in range(n + 1):
            outcomes = [True] * c + [False] * (n - c)
            for k in range(1, n + 1):
                subsets = list(combinations(outcomes, k))
                assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_pass_at_k_of_the_impossible(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=str(k if c == 1 else c)):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("b", "c", "p"),
    [
        (0, 0, 1.0),
        (0, 5, 2 / 32),
        (1, 8, 2 * (1 + 9) / 512),
        (3, 3, 1.0),
        (10, 2, 2 * (1 + 12 + 66) / 4096),
    ],
)
def test_mcnemar_by_hand(b: int, c: int, p: float) -> None:
    assert mcnemar(b, c) == pytest.approx(p) == mcnemar(c, b)


def test_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(300):
        values = rng.beta(2, 5, size=80)  # mean 2/7, skewed
        low, high = bootstrap_interval(values.tolist(), resamples=600, seed=trial)
        covered += low <= 2 / 7 <= high
    # 95 % of 300 is 285; six standard deviations of the count are 23.
    assert 262 <= covered <= 299


def test_bootstrap_is_near_the_normal_interval_and_repeats_itself() -> None:
    values = [float(i % 4 == 0) for i in range(400)]
    low, high = bootstrap_interval(values)
    half = 1.96 * math.sqrt(0.25 * 0.75 / 400)
    assert (low, high) == (pytest.approx(0.25 - half, abs=0.006), pytest.approx(0.25 + half, abs=0.006))
    assert bootstrap_interval(values) == (low, high)
    assert bootstrap_interval(values, seed=1) != (low, high)


def test_bootstrap_of_equal_values_and_of_none() -> None:
    assert bootstrap_interval([0.5, 0.5, 0.5]) == (0.5, 0.5)
    with pytest.raises(ValueError, match="no values"):
        bootstrap_interval([])


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # By hand, z = 1.95996: (8 + z^2 / 2 -+ z sqrt(8 * 2 / 10 + z^2 / 4)) / (10 + z^2)
        #   = (9.92073 -+ 1.95996 * 1.60011) / 13.84146
        (8, 10, 0.4902, 0.9433),
    ],
)
def test_wilsons_interval(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
