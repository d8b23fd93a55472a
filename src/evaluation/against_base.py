"""A trained team beside many attempts of its base: where it is ahead, and from how many attempts on the base is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import betaln, expit

from .comparison import check_tasks
from .records import EvaluationError
from .statistics import DIFFERENCE, bootstrap_interval, default_ks, no_difference, pass_at_k

Successes = Mapping[str, Sequence[bool]]
"""Of each task, the success of each of its samples."""

Curve = Mapping[int, tuple[float, tuple[float, float]]]
"""k -> pass@k and its 95 % bootstrap interval over tasks."""


@dataclass(frozen=True)
class AgainstBase:
    """A trained team against its base on the same tasks.

    ``difference`` is the trained pass@1 less the base's pass@n, n all of its samples, ``interval`` its 95 % bootstrap
    interval over tasks, and ``p_value`` that of the hypothesis that it is 0 (Student's t over tasks, two-sided).  Of
    the ``unsolved`` tasks, which the base never solved, the trained team solved ``gained`` at least once, and a share
    ``gained_share`` of all its samples.  ``overtaken_at`` is the k from which on the base's pass@k, as
    :class:`Fitted` to its counts, exceeds the trained pass@1.
    """

    base: Curve
    trained: Curve
    difference: float
    interval: tuple[float, float]
    p_value: float
    unsolved: int
    gained: int
    gained_share: float
    overtaken_at: float

    @property
    def verdict(self) -> str:
        """Whether the trained pass@1 is above or below the base's pass@n.  A larger n may say otherwise."""
        low, high = self.interval
        return "above" if low > 0 else "below" if high < 0 else "undecided"


@dataclass(frozen=True)
class Fitted:
    """A model of a base: a task is solved with a probability that has a beta distribution over tasks (``a``, ``b``).

    Then pass@k is 1 - B(a, b + k) / B(a, b), which tends to 1: the model has no task that is never solved.  What it
    says beyond the number of samples is not measured.
    """

    a: float
    b: float

    @classmethod
    def to(cls, successes: Successes) -> Fitted:
        """By maximum likelihood to the numbers of successes (beta-binomial).  Where tasks differ by less than chance,
        the distribution has hardly any width: ``a`` + ``b`` is at most 1e6."""
        wins = np.array([sum(each) for each in successes.values()])
        samples = np.array([len(each) for each in successes.values()])

        def loss(point: np.ndarray) -> float:
            fitted = cls._at(point)
            return -float((betaln(wins + fitted.a, samples - wins + fitted.b) - betaln(fitted.a, fitted.b)).sum())

        mean = (wins.sum() + 0.5) / (samples.sum() + 1)
        start = np.array([np.log(mean / (1 - mean)), 1.0])
        bounds = [(-20.0, 20.0), (np.log(1e-3), np.log(1e6))]
        options = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000}
        return cls._at(minimize(loss, start, method="Nelder-Mead", bounds=bounds, options=options).x)

    @classmethod
    def _at(cls, point: np.ndarray) -> Fitted:
        """The distribution whose mean has this log-odds, and whose ``a`` + ``b`` this logarithm."""
        mean, size = float(expit(point[0])), float(np.exp(point[1]))
        return cls(mean * size, (1 - mean) * size)

    def pass_at(self, k: float) -> float:
        return 1 - float(np.exp(betaln(self.a, self.b + k) - betaln(self.a, self.b)))

    def overtakes(self, share: float) -> float:
        """The k at which pass@k is ``share``; infinite where it would be above e^60."""
        if self.pass_at(1) >= share:
            return 1.0
        if self.pass_at(np.exp(60.0)) <= share:
            return np.inf
        return float(np.exp(brentq(lambda x: self.pass_at(np.exp(x)) - share, 0.0, 60.0)))


def against_base(base: Successes, trained: Successes) -> AgainstBase:
    """Tasks that lost a sample to a fault, of either, are left out.

    Raises :class:`EvaluationError` where the tasks differ, and where none is left.
    """
    check_tasks(list(base), list(trained), ("the base", "the trained team"))
    whole = set(_whole(base)) & set(_whole(trained))
    if not whole:
        raise EvaluationError("every task has lost a sample in the base or in the trained team")
    base, trained = ({task: each[task] for task in each if task in whole} for each in (base, trained))
    samples = len(next(iter(base.values())))
    reach = {task: pass_at_k(len(wins), sum(wins), samples) for task, wins in base.items()}
    differences = [fmean(trained[task]) - reach[task] for task in base]
    unsolved = [task for task, wins in base.items() if not any(wins)]
    points = curve(trained)
    return AgainstBase(
        curve(base),
        points,
        fmean(differences),
        bootstrap_interval(differences, DIFFERENCE),
        no_difference(differences),
        len(unsolved),
        sum(any(trained[task]) for task in unsolved),
        fmean(fmean(trained[task]) for task in unsolved) if unsolved else 0.0,
        Fitted.to(base).overtakes(points[1][0]),
    )


def _whole(successes: Successes) -> list[str]:
    """The tasks that lost no sample."""
    samples = max(len(wins) for wins in successes.values())
    return [task for task, wins in successes.items() if len(wins) == samples > 0]


def curve(successes: Successes) -> Curve:
    """pass@k for the powers of two up to the number of samples, which is that of every task, and that number."""
    samples = len(next(iter(successes.values())))
    points = {}
    for k in default_ks(samples):
        values = [pass_at_k(len(wins), sum(wins), k) for wins in successes.values()]
        points[k] = (fmean(values), bootstrap_interval(values))
    return points
