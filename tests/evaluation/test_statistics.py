"""Estimates and intervals against hand computation, enumeration and simulation."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, norm

from troupe.evaluation.statistics import (
    DIFFERENCE,
    SHARE,
    Estimate,
    Unanimous,
    bootstrap_interval,
    hierarchical_estimate,
    holm,
    mcnemar,
    pass_at_k,
    seeds_estimate,
    t_interval,
    wilson,
)


def test_t_interval_by_hand() -> None:
    # Mean 2, standard deviation 1, t(0.975, 2) = 4.302653: half a width of 4.302653 / sqrt(3).
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-6)
    assert t_interval([0.5]) is None
    assert t_interval([]) is None
    assert t_interval([0.0, 0.0, 0.0]) is None  # three that agree do not say how far a fourth would differ
    assert seeds_estimate([4.0, 4.0]) is None


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
    # Without a success among 20 tasks, Clopper and Pearson: 1 - 0.025^(1/20) = 0.16843
    assert bootstrap_interval([0.0] * 20) == (0.0, pytest.approx(0.16843, abs=5e-6))
    assert bootstrap_interval([1.0] * 20) == (pytest.approx(1 - 0.16843, abs=5e-6), 1.0)
    assert bootstrap_interval([0.0] * 20, DIFFERENCE) == pytest.approx((-0.16843, 0.16843), abs=5e-6)
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


# ---- seeds and tasks ------------------------------------------------------------------------------------------------


def arrays(*values: list[float]) -> list[np.ndarray]:
    return [np.array(one) for one in values]


def estimate(*args: list[np.ndarray], **keys: bool) -> Estimate:
    result = hierarchical_estimate(*args, **keys)
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("values", "crossed", "variance"),
    [
        # Seeds' means 1 and 0, a draw of one has variance 1/4; two are drawn.  Tasks add nothing.
        (arrays([1, 1], [0, 0]), False, 1 / 4 / 2),
        # Seeds agree.  Of a seed's two tasks two are drawn: variance 1/4 / 2; two seeds.
        (arrays([1, 0], [0, 1]), False, 1 / 4 / 2 / 2),
        # Seeds' means 1 and 1/2: variance 1/16 of a draw; tasks: the mean of 0 and 1/8.
        (arrays([1, 1], [1, 0]), False, (1 / 16 + 1 / 16) / 2),
        # Both seeds solve the same task; one draw of the two tasks holds for both.
        (arrays([1, 0], [1, 0]), True, 1 / 4 / 2),
        # With three seeds of equal results, whichever is drawn: only tasks vary.
        (arrays([1, 0, 0, 1], [1, 0, 0, 1], [1, 0, 0, 1]), True, 1 / 4 / 4),
    ],
)
def test_the_hierarchical_bootstrap_by_hand(values: list[np.ndarray], crossed: bool, variance: float) -> None:
    result = estimate(values, crossed=crossed)
    assert result.mean == pytest.approx(np.mean([one.mean() for one in values]))
    assert result.standard_error == pytest.approx(math.sqrt(variance))


def test_two_sides_with_other_tasks_share_the_seeds_alone() -> None:
    # Seeds move both sides alike, so their difference has no variance over seeds; tasks: 1/4 / 2 on each side, 2 seeds.
    high, low = arrays([2.5, 1.5], [1.5, 0.5]), arrays([1.5, 0.5], [0.5, -0.5])
    result = estimate(high, low)
    assert result.mean == pytest.approx(1.0)
    assert result.standard_error == pytest.approx(math.sqrt(2 * 1 / 4 / 2 / 2))


@pytest.mark.parametrize("crossed", [False, True])
@pytest.mark.parametrize("two_sides", [False, True])
def test_the_standard_error_is_that_of_drawn_resamples(crossed: bool, two_sides: bool) -> None:
    rng = np.random.default_rng(3)
    sizes = ([7, 7, 7], [4, 4, 4]) if crossed else ([7, 5, 9], [4, 8, 3])
    sides = [[rng.normal(seed, 1 + seed, size) for seed, size in enumerate(side)] for side in sizes][: 1 + two_sides]
    seeds, parts = rng.integers(3, size=(20_000, 3)), []
    for side in sides:
        if crossed:
            tasks = rng.integers(len(side[0]), size=(len(seeds), 1, len(side[0])))
            parts.append(np.stack(side)[seeds[:, :, None], tasks].mean((1, 2)))
        else:
            drawn = [values[rng.integers(len(values), size=(*seeds.shape, len(values)))].mean(-1) for values in side]
            parts.append(np.choose(seeds, drawn).mean(1))
    means = parts[0] - sum(parts[1:])
    # The standard deviation of 20,000 normal draws is within 2 % (four of its own standard errors).
    assert estimate(*sides, crossed=crossed).standard_error == pytest.approx(np.std(means), rel=0.02)


def test_lost_tasks_are_left_out() -> None:
    nested = hierarchical_estimate(arrays([1, math.nan, 0], [1, 1, 1]))
    assert nested == hierarchical_estimate(arrays([1, 0], [1, 1, 1]))
    crossed = hierarchical_estimate(arrays([1, math.nan, 0], [1, 1, 1]), crossed=True)
    assert crossed == hierarchical_estimate(arrays([1, 0], [1, 1]), crossed=True)
    assert hierarchical_estimate(arrays([1, 0])) is None
    with pytest.raises(ValueError, match="at least one task"):
        hierarchical_estimate(arrays([1, 0], [math.nan]))


def test_the_interval_and_the_p_values_are_students() -> None:
    # t(0.975, 9) = 2.262157
    tenth = Estimate(0.1, 0.02, 10)
    assert tenth.interval == pytest.approx((0.1 - 0.04524314, 0.1 + 0.04524314))
    assert tenth.p_at_most(0.1 - 2.262157 * 0.02) == pytest.approx(0.025, abs=1e-7)
    assert tenth.p_at_least(0.1 + 2.262157 * 0.02) == pytest.approx(0.025, abs=1e-7)
    assert tenth.p_at_most(0.1) == tenth.p_at_least(0.1) == 0.5


def test_intervals_are_cut_to_what_the_mean_can_be_and_p_values_are_not() -> None:
    values = [1.0, 1.0, 0.9]
    whole, share = seeds_estimate(values), seeds_estimate(values, SHARE)
    assert whole is not None and share is not None
    assert whole.interval[1] > 1 and share.interval == (whole.interval[0], 1.0) == t_interval(values, SHARE)
    assert share.p_at_least(1.0) == whole.p_at_least(1.0)
    tasks = [np.array([1.0] * 19 + [0.0]), np.ones(20), np.ones(20)]
    success, difference = hierarchical_estimate(tasks), hierarchical_estimate(tasks, bounds=DIFFERENCE)
    assert success is not None and difference is not None
    assert success.interval[1] == difference.interval[1] == 1.0
    low = hierarchical_estimate([1 - one for one in tasks])
    assert low is not None and low.interval[0] == 0.0


def test_seeds_that_all_fail_have_an_interval() -> None:
    # 5 seeds of the same 200 tasks: (t(0.975, 199) / t(0.975, 4))^2 = (1.971957 / 2.776445)^2 = 0.504443, that is
    # 100.889 independent tasks, and 1 - 0.025^(1 / 100.889) = 0.035904.
    failed = hierarchical_estimate([np.zeros(200)] * 5, crossed=True)
    assert failed is not None
    assert failed.interval == (0.0, pytest.approx(0.035904, abs=1e-6))
    # Of other tasks there are 1000: (1.962341 / 2.776445)^2 * 1000 = 499.539, and 1 - 0.025^(1 / 499.539) = 0.007357.
    solved = hierarchical_estimate([np.ones(200)] * 5)
    assert solved is not None
    assert solved.interval == (pytest.approx(1 - 0.007357, abs=1e-6), 1.0)
    assert solved.interval[1] - solved.interval[0] == pytest.approx(1 - beta.ppf(0.025, 499.539, 1), abs=1e-6)
    # All solved on one side, all failed on the other, other tasks: a task may be off by two.
    apart = hierarchical_estimate([np.ones(200)] * 5, [np.zeros(200)] * 5, bounds=DIFFERENCE)
    assert apart is not None
    assert apart.interval == (pytest.approx(1 - 2 * 0.007357, abs=1e-6), 1.0)


def test_the_p_values_of_values_that_agree_are_those_of_their_interval() -> None:
    same = Unanimous(0.0, 100, DIFFERENCE)
    low, high = same.interval
    assert (low, high) == pytest.approx((-0.036217, 0.036217), abs=1e-6)  # 1 - 0.025^(1/100)
    assert same.p_at_most(low) == same.p_at_least(high) == pytest.approx(0.025)
    assert same.p_at_least(0.01) == pytest.approx(0.99**100)
    assert same.p_at_most(0.0) == same.p_at_least(0.0) == same.p_at_most(0.2) == 1.0
    assert same.p_at_least(1.0) == same.p_at_most(-2.0) == 0.0
    most = Unanimous(1.0, 100, (0.0, 1.0))
    assert (most.p_at_most(0.95), most.p_at_least(0.95), most.p_at_most(0.0)) == (pytest.approx(0.95**100), 1.0, 0.0)
    with pytest.raises(ValueError, match="not within"):
        Unanimous(-1.0, 100, (0.0, 1.0))


def test_rare_successes_are_within_the_interval_of_seeds_that_all_fail() -> None:
    rng = np.random.default_rng(2)
    covered, empty = 0, 0
    for _ in range(200):
        values = [(rng.random(100) < 0.002).astype(float) for _ in range(5)]  # of 500 tasks none: exp(-1)
        result = hierarchical_estimate(values)
        assert result is not None
        covered += result.interval[0] <= 0.002 <= result.interval[1]
        empty += not result.mean
    assert empty > 50
    assert covered >= 181


def test_with_variance_over_seeds_the_interval_covers_and_the_naive_one_does_not() -> None:
    rng = np.random.default_rng(0)
    covered = {"hierarchical": 0, "tasks alone": 0}
    trials, seeds, tasks = 200, 5, 100
    for trial in range(trials):
        chance = np.clip(0.6 + 0.1 * rng.standard_normal(seeds), 0, 1)
        values = [(rng.random(tasks) < p).astype(float) for p in chance]
        result = hierarchical_estimate(values)
        assert result is not None
        naive = bootstrap_interval(np.concatenate(values).tolist(), resamples=100, seed=trial)
        for name, (low, high) in (("hierarchical", result.interval), ("tasks alone", naive)):
            covered[name] += low <= 0.6 <= high
    # 95 % of 200 is 190, with a standard deviation of 3.1; it may be conservative.
    assert covered["hierarchical"] >= 181
    assert covered["tasks alone"] < 0.7 * trials


def test_tasks_that_all_seeds_share_count_once() -> None:
    rng = np.random.default_rng(1)
    covered = {True: 0, False: 0}
    for _ in range(120):
        easy = rng.beta(0.2, 0.2, size=50)  # mean 1/2: most tasks are solved by all seeds or by none
        values = [(rng.random(50) < easy).astype(float) for _ in range(8)]
        for crossed in covered:
            result = hierarchical_estimate(values, crossed=crossed)
            assert result is not None
            covered[crossed] += result.interval[0] <= 0.5 <= result.interval[1]
    # 95 % of 120 is 114, with a standard deviation of 2.4.
    assert covered[True] >= 107
    assert covered[False] < 0.8 * 120


@given(
    st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=2, max_size=4),
    st.floats(-5, 5),
    st.floats(0.1, 3),
    st.booleans(),
)
def test_shifts_and_scales_go_through(outcomes: list[list[bool]], shift: float, scale: float, crossed: bool) -> None:
    values = [np.array(one, dtype=float) for one in outcomes]
    plain = hierarchical_estimate(values, crossed=crossed)
    bounds = (shift, shift + scale)
    moved = hierarchical_estimate([shift + scale * one for one in values], crossed=crossed, bounds=bounds)
    assert plain is not None and moved is not None
    assert moved.mean == pytest.approx(shift + scale * plain.mean)
    assert moved.standard_error == pytest.approx(scale * plain.standard_error, abs=1e-9)


# ---- several tests --------------------------------------------------------------------------------------------------


def test_holm_by_hand() -> None:
    # Sorted: 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04, which is raised to the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_as_statsmodels_and_r_have_it() -> None:
    # The ten p-values in the tests of statsmodels' multipletests (R: p.adjust); adjusted by hand: the smallest times
    # 10, 9, 8, 7, 6; from 0.1771 * 6 > 1 on, 1.
    raw = [0.838541367553, 0.642193923795, 0.680845947633, 0.967833824309, 0.71626938238, 0.177096952723]
    raw += [5.23656777208e-05, 0.0202732688798, 0.00028140506198, 0.0149877310796]
    adjusted = [1, 1, 1, 1, 1, 1, 0.000523656777208, 0.1419128821586, 0.00253264555782, 0.1199018486368]
    assert holm(raw) == pytest.approx(adjusted, rel=1e-12)


def test_shaffer_by_hand() -> None:
    """Two claims of two hypotheses that exclude each other.  Sorted: 0.01 and 0.02 times 2, since at most two are true;
    0.03 times 2, since two were rejected; 0.9 times 1.  Holm's are 0.04, 0.06, 0.06 and 0.9."""
    assert holm([0.01, 0.9, 0.03, 0.02], 2) == pytest.approx([0.02, 0.9, 0.06, 0.04])
    # Three claims, of which one has both hypotheses at one threshold: at most four of six, then 4, 4, 3, 2, 1.
    assert holm([0.001, 0.002, 0.003, 0.01, 0.05, 0.5], 4) == pytest.approx([0.004, 0.008, 0.012, 0.03, 0.1, 0.5])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(1, 8))
def test_shaffer_lies_between_nothing_and_holm_and_keeps_the_order(p_values: list[float], most_true: int) -> None:
    adjusted = holm(p_values, most_true)
    assert all(p <= q <= r for p, q, r in zip(p_values, adjusted, holm(p_values), strict=True))
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [adjusted[i] for i in order] == sorted(adjusted)
    assert holm(p_values, len(p_values)) == holm(p_values)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("differences", [(0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 6.0), (0.0, 3.0, -4.0, 1.0)])
def test_shaffer_holds_the_error_of_the_family(differences: tuple[float, ...], correlation: float) -> None:
    """Four claims: is the difference above 0, is it below 1?  Differences in standard errors, 20,000 pages each.

    A wrong rejection is one of a true hypothesis.  A quarter of the pages with 0 everywhere reject one by chance, if
    nothing is corrected.
    """
    rng = np.random.default_rng(0)
    common = rng.standard_normal((20_000, 1))
    noise = correlation**0.5 * common + (1 - correlation) ** 0.5 * rng.standard_normal((20_000, len(differences)))
    means = noise + np.array(differences)
    p_above, p_below = norm.sf(means), norm.cdf(means - 1.0)
    wrong = 0
    for above, below in zip(p_above, p_below, strict=True):
        adjusted = holm([*above, *below], len(differences))
        true = [*(d <= 0 for d in differences), *(d >= 1 for d in differences)]
        wrong += any(p <= 0.05 for p, holds in zip(adjusted, true, strict=True) if holds)
    assert wrong / 20_000 <= 0.05 + 3 * (0.05 * 0.95 / 20_000) ** 0.5


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_nothing_and_bonferroni_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1.0, len(p_values) * p)
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [adjusted[i] for i in order] == sorted(adjusted)
