"""A trained team beside many attempts of its base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

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
    ``gained_share`` of all its samples.
    """

    base: Curve
    trained: Curve
    difference: float
    interval: tuple[float, float]
    p_value: float
    unsolved: int
    gained: int
    gained_share: float

    @property
    def verdict(self) -> str:
        """Whether the trained pass@1 is above or below the base's pass@n.  A larger n may say otherwise."""
        low, high = self.interval
        return "above" if low > 0 else "below" if high < 0 else "undecided"


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
    return AgainstBase(
        curve(base),
        curve(trained),
        fmean(differences),
        bootstrap_interval(differences, DIFFERENCE),
        no_difference(differences),
        len(unsolved),
        sum(any(trained[task]) for task in unsolved),
        fmean(fmean(trained[task]) for task in unsolved) if unsolved else 0.0,
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
