"""Shares and means with their intervals, paired comparisons, and the correction for several tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, inf, sqrt
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, bootstrap, sem, t, ttest_1samp

SHARE, DIFFERENCE, ANY = (0.0, 1.0), (-1.0, 1.0), (-inf, inf)
"""The bounds of a success, of a difference of two, and of a value without bounds."""


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share (Wilson 1927), by scipy."""
    interval = binomtest(successes, trials).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)


def t_interval(values: Sequence[float], bounds: tuple[float, float] = ANY) -> tuple[float, float] | None:
    """The 95 % interval of the mean of ``values``, one per seed, by Student's t with n - 1 degrees of freedom, cut to
    ``bounds`` (it holds a mean within them as often); None for fewer than two values, and where all are equal: that few
    seeds agree does not say how far others would differ.
    """
    estimate = seeds_estimate(values, bounds)
    return estimate.interval if estimate else None


def default_ks(samples: int) -> list[int]:
    """The k of pass@k that are shown by default: the powers of two up to the number of samples, and that number."""
    return sorted({2**i for i in range(samples.bit_length())} | {samples})


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """The unbiased estimate, from ``samples`` of which ``successes`` succeeded, of the probability that at least one of
    ``k`` succeeds: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374, equation 1).

    Raises ``ValueError`` where ``k`` is not in [1, ``samples``] or ``successes`` not in [0, ``samples``].
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {max(k, 1)} samples per task and k of at least 1, got {samples}")
    if not 0 <= successes <= samples:
        raise ValueError(f"{successes} successes among {samples} samples")
    return 1 - comb(samples - successes, k) / comb(samples, k)


@dataclass(frozen=True)
class Unanimous:
    """The mean of values within ``bounds``, of which all that were seen are ``value``: no task solved, or each, or each
    as on the other side.  A bootstrap has nothing to draw between there, and its interval no width.

    ``trials`` independent tasks without another value bound the share of tasks that have one, as Clopper and Pearson
    (1934) bound a share of which nothing was seen ("the rule of three"); such tasks have the value of a bound at worst.
    """

    value: float
    trials: float
    bounds: tuple[float, float]

    def __post_init__(self) -> None:
        low, high = self.bounds
        if not low - 1e-9 <= self.value <= high + 1e-9:
            raise ValueError(f"a value of {self.value:g} is not within [{low:g}, {high:g}]")

    @classmethod
    def over_seeds(cls, value: float, tasks: int, seeds: int, bounds: tuple[float, float]) -> Unanimous:
        """Of ``tasks`` in all, in ``seeds`` clusters: as many independent ones as Korn and Graubard (1998, Survey
        Methodology 24) count: fewer by the ratio of Student's t squared, since few seeds may agree by chance."""
        ratio = float(t.ppf(0.975, max(1, tasks - 1)) / t.ppf(0.975, seeds - 1))
        return cls(value, tasks * min(1.0, ratio**2), bounds)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval, within ``bounds``."""
        others = 1 - 0.025 ** (1 / self.trials)
        low, high = self.bounds
        return self.value - others * (self.value - low), self.value + others * (high - self.value)

    def p_at_most(self, bound: float) -> float:
        """The one-sided p-value of the hypothesis that the true mean is at most ``bound``."""
        return self._p(self.value - bound, self.value - self.bounds[0])

    def p_at_least(self, bound: float) -> float:
        """The one-sided p-value of the hypothesis that the true mean is at least ``bound``."""
        return self._p(bound - self.value, self.bounds[1] - self.value)

    def _p(self, distance: float, room: float) -> float:
        """Of a mean that is ``distance`` away, where no value is farther away than ``room``."""
        if distance <= 0:
            return 1.0
        return (1 - distance / room) ** self.trials if distance < room else 0.0


def bootstrap_interval(
    values: Sequence[float], bounds: tuple[float, float] = SHARE, *, resamples: int = 4000, seed: int = 0
) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean of ``values`` within ``bounds``, one per task, by scipy.

    Tasks are drawn with replacement; ``seed`` fixes the draws.  Of values that are all equal it is that of
    :class:`Unanimous`.  Raises ``ValueError`` where there are none.
    """
    if not values:
        raise ValueError("an interval of no values")
    if min(values) == max(values):
        return Unanimous(float(values[0]), len(values), bounds).interval
    result = bootstrap(
        (np.asarray(values, dtype=np.float64),),
        np.mean,
        n_resamples=resamples,
        batch=max(1, 2**22 // len(values)),  # at most 32 MiB of draws at a time
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(result.low), float(result.high)


def two_sided(difference: Unanimous | Estimate) -> float:
    """The two-sided p-value of the hypothesis that ``difference`` is 0."""
    return min(1.0, 2 * min(difference.p_at_most(0.0), difference.p_at_least(0.0)))


def no_difference(differences: Sequence[float]) -> float:
    """The two-sided p-value of the hypothesis that the mean of ``differences``, one per task, is 0: Student's t, by
    scipy; of differences that are all equal by :class:`Unanimous`.
    """
    if min(differences) == max(differences):
        return two_sided(Unanimous(float(differences[0]), len(differences), DIFFERENCE))
    return float(ttest_1samp(differences, 0.0).pvalue)


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided p-value of McNemar's exact test (McNemar 1947): whether tasks that only the first solved are as
    frequent as tasks that only the second solved.  1 where no task tells the two apart.
    """
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0


Values = Sequence[NDArray[np.float64]]
"""Of each seed the value of each of its tasks, (tasks,); not a number where the task was lost."""


@dataclass(frozen=True)
class Estimate:
    """A mean over ``seeds`` of values within ``bounds``, and its standard error over seeds and tasks; where that is 0,
    ``unanimous`` has the interval and the p-values."""

    mean: float
    standard_error: float
    seeds: int
    unanimous: Unanimous | None = None
    bounds: tuple[float, float] = ANY

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval by Student's t, ``seeds`` - 1 degrees of freedom, cut to ``bounds``, within which the true
        mean lies: it holds the mean as often as the whole one."""
        if self.unanimous is not None:
            return self.unanimous.interval
        half_width = float(t.ppf(0.975, self.seeds - 1)) * self.standard_error
        low, high = self.bounds
        return max(low, self.mean - half_width), min(high, self.mean + half_width)

    def p_at_most(self, bound: float) -> float:
        """The one-sided p-value of the hypothesis that the true mean is at most ``bound``."""
        return self._p(self.mean - bound) if self.unanimous is None else self.unanimous.p_at_most(bound)

    def p_at_least(self, bound: float) -> float:
        """The one-sided p-value of the hypothesis that the true mean is at least ``bound``."""
        return self._p(bound - self.mean) if self.unanimous is None else self.unanimous.p_at_least(bound)

    def _p(self, distance: float) -> float:
        return float(t.sf(distance / self.standard_error, self.seeds - 1))


def seeds_estimate(values: Sequence[float], bounds: tuple[float, float] = ANY) -> Estimate | None:
    """The mean of ``values`` within ``bounds``, one per seed, its standard error over seeds alone; None for fewer than
    two, and where all are equal, as of :func:`t_interval`."""
    if len(values) < 2 or min(values) == max(values):
        return None
    return Estimate(fmean(values), float(sem(values)), len(values), bounds=bounds)


def hierarchical_estimate(
    values: Values,
    less: Values | None = None,
    *,
    crossed: bool = False,
    bounds: tuple[float, float] = SHARE,
) -> Estimate | None:
    """The mean over seeds of the mean over tasks, its standard error that of the hierarchical bootstrap: each resample
    draws seeds with replacement, and for each of them tasks with replacement (Saravanan et al. 2020, Neurons, Behavior,
    Data Analysis and Theory 3; Davison and Hinkley 1997, section 3.8).  No resample is drawn: the variance of all that
    there could be has a closed form.

    With ``less``, the values of another setting for the same seeds but other tasks, the mean of the differences: seeds
    are drawn together, tasks apart.  (Values of the same tasks are subtracted before.)  ``crossed``: all seeds have the
    same tasks, in the same order, and of ``less``, too; one draw of tasks then holds for all seeds of a resample, and a
    task that one seed lost is left out.

    The interval is Student's: that of the resamples' percentiles is too narrow over few seeds, by the factor
    sqrt((n - 1) / n), and does not reach beyond the seeds' own means.  The factor itself stays in the standard error:
    where seeds differ much, 94 % of intervals hold the mean.  Where seeds hardly differ they are wider than they need
    be, since the choice of tasks is then counted in the seeds' means and once more.  Where all values are equal,
    :class:`Unanimous` takes its place; ``bounds`` are those of a task's value (or difference).

    None for fewer than two seeds.  Raises ``ValueError`` where a seed has no task.
    """
    sides = [_complete(side, crossed) for side in ([values] if less is None else [values, less])]
    count = len(values)
    if any(len(side) != count for side in sides) or any(not len(one) for side in sides for one in side):
        raise ValueError("every seed needs the value of at least one task on every side")
    if count < 2:
        return None
    by_seed = [np.array([one.mean() for one in side]) for side in sides]
    differences = by_seed[0] - by_seed[1] if less is not None else by_seed[0]
    tasks_part = _crossed_variance if crossed else _nested_variance
    mean, error = fmean(differences), sqrt(np.var(differences) / count + sum(map(tasks_part, sides)))
    if error > 1e-9:
        return Estimate(mean, error, count, bounds=bounds)
    tasks = min(len(side[0]) if crossed else sum(map(len, side)) for side in sides)
    return Estimate(mean, 0.0, count, Unanimous.over_seeds(mean, tasks, count, bounds))


def _complete(values: Values, crossed: bool) -> list[NDArray[np.float64]]:
    """Without lost tasks; if ``crossed``, without those that any seed lost."""
    if crossed:
        table = np.stack(values)
        return list(table[:, ~np.isnan(table).any(axis=0)])
    return [one[~np.isnan(one)] for one in values]


def _nested_variance(side: Values) -> float:
    """What the draw of each seed's own tasks adds to the variance of a resample's mean."""
    return fmean(np.var(one) / len(one) for one in side) / len(side)


def _crossed_variance(side: Values) -> float:
    """The same of one draw of tasks for all seeds: the variance of tasks, and of what is left beside seeds and tasks
    (an analysis of variance; its parts are uncorrelated)."""
    table = np.stack(side)
    tasks = table.mean(axis=0)
    rest = table - tasks - (table.mean(axis=1, keepdims=True) - table.mean())
    return float(np.var(tasks) / tasks.size + np.var(rest) / table.size)


def holm(p_values: Sequence[float], most_true: int | None = None) -> list[float]:
    """The p-values adjusted by Holm's step-down procedure (Holm 1979), in their order: where those of at most alpha are
    rejected, the probability of one or more wrong rejections is at most alpha, however the tests depend on each other.

    ``most_true``: how many of the hypotheses can be true together, where some exclude others.  Then Shaffer's procedure
    S1 (1986, Journal of the American Statistical Association 81): after r rejections at most n - r are true, and never
    more than ``most_true``, so that no p-value is multiplied by more.  It rejects what Holm's does, and sometimes more.
    """
    most = len(p_values) if most_true is None else most_true
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, min(most, len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
