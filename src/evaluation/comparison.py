"""Evaluations on the same tasks, compared task by task: two, or those of two settings over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from .records import EvaluationError, EvaluationRecord, locate
from .statistics import DIFFERENCE, bootstrap_interval, hierarchical_estimate, holm, mcnemar, two_sided

Results = Mapping[str, float | None]
"""Success on each task, in [0, 1]: the mean of its samples; None where all its episodes are lost."""


@dataclass(frozen=True)
class PairedComparison:
    """Two settings on the same tasks, over ``seeds``, without the ``lost`` ones, of which one side has lost every
    episode.

    ``first`` and ``second`` are mean success over seeds; ``difference`` is second less first with its 95 %
    ``interval``: of one seed by a bootstrap over ``tasks``, of several by a hierarchical bootstrap over seeds and
    tasks, to which ``p`` belongs, two-sided.  Of one seed ``only_first`` and ``only_second`` count tasks that one
    solved and the other did not, and ``p`` is McNemar's; all three None where a task has several samples.
    """

    seeds: int
    tasks: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    p: float | None = None
    only_first: int | None = None
    only_second: int | None = None
    lost: int = 0


def compare(pairs: Sequence[tuple[Results, Results]], *, single: bool = True) -> PairedComparison | None:
    """The results of two settings, a pair per seed, of which both have the same tasks.  ``single``: these are of one
    sample per task.  A seed without a task that neither lost is left out; None where all are."""
    pairs = [(a, b) for a, b in pairs if any(a[task] is not None and b[task] is not None for task in a)]
    if not pairs:
        return None
    sides = [[np.array([pair[i][task] for task in pair[0]], dtype=np.float64) for pair in pairs] for i in (0, 1)]
    differences = [b - a for a, b in zip(*sides, strict=True)]  # not a number where one side lost the task
    known = [~np.isnan(each) for each in differences]
    first, second = (fmean(float(one[i].mean()) for one, i in zip(side, known, strict=True)) for side in sides)
    by_seed = [
        [task for task, i in zip(pair[0], own, strict=True) if i] for pair, own in zip(pairs, known, strict=True)
    ]
    tasks, lost = len({task for seed in by_seed for task in seed}), sum(int((~own).sum()) for own in known)
    means = (len(pairs), tasks, first, second)
    if len(pairs) == 1:
        own = differences[0][known[0]].tolist()
        compared = PairedComparison(*means, fmean(own), bootstrap_interval(own, DIFFERENCE), lost=lost)
        only = (own.count(-1), own.count(1))
        return replace(compared, p=mcnemar(*only), only_first=only[0], only_second=only[1]) if single else compared
    # A task that one seed lost is no reason to draw the others' tasks apart.
    crossed = len({tuple(a) for a, _ in pairs}) == 1 and bool(set.intersection(*map(set, by_seed)))
    estimate = hierarchical_estimate(differences, crossed=crossed, bounds=DIFFERENCE)
    assert estimate is not None  # of two seeds or more
    return PairedComparison(*means, estimate.mean, estimate.interval, two_sided(estimate), lost=lost)


def check_tasks(first: list[str], second: list[str], names: tuple[str, str]) -> None:
    """Raises :class:`EvaluationError`, naming the first task that differs."""
    for place, (a, b) in enumerate(zip(first, second, strict=False), 1):
        if a != b:
            raise EvaluationError(f"different tasks: number {place} is {a} in {names[0]}, but {b} in {names[1]}")
    if len(first) != len(second):
        more, fewer = (0, 1) if len(first) > len(second) else (1, 0)
        place, extra = min(len(first), len(second)) + 1, max(first, second, key=len)[min(len(first), len(second))]
        raise EvaluationError(f"different tasks: number {place} is {extra} in {names[more]}, but {names[fewer]} ends")


def condition_pairs(
    one: tuple[EvaluationRecord, str | None], other: tuple[EvaluationRecord, str | None]
) -> list[tuple[str, str]]:
    """The conditions to compare: those that are named, the only ones, or those of one name.

    Raises :class:`EvaluationError` where there is no such pair.
    """
    (first, a), (second, b) = one, other
    firsts, seconds = [a] if a else list(first.conditions), [b] if b else list(second.conditions)
    if len(firsts) == len(seconds) == 1:
        return [(firsts[0], seconds[0])]
    if common := [name for name in firsts if name in seconds]:
        return [(name, name) for name in common]
    raise EvaluationError(
        f"no condition in common: {first.path} has {', '.join(firsts)}, {second.path} has {', '.join(seconds)}; "
        "name one of each: FOLDER@CONDITION"
    )


def comparisons(ones: Sequence[str], others: Sequence[str]) -> list[tuple[str, PairedComparison]]:
    """The comparisons of ``ones`` and ``others`` (``FOLDER[@CONDITION]``, one per seed, in the same order), by the
    name of the condition.  The two of a pair need the same tasks; other pairs may have others.  Over several seeds
    p-values are corrected by Holm for the conditions.

    Raises :class:`EvaluationError` where the two sides differ in number, or a pair in its tasks, or no task is left,
    and for a condition that is not the first pair's.
    """
    if len(ones) != len(others):
        raise EvaluationError(f"A has {len(ones)} evaluations and B {len(others)}: give one pair per seed")
    sides = [(locate(a), locate(b)) for a, b in zip(ones, others, strict=True)]
    named = condition_pairs(*sides[0])
    for pair in sides:
        for (record, condition), names in zip(pair, zip(*named, strict=True), strict=True):
            if condition is not None and names != (condition,):
                compared = ", ".join(names)
                raise EvaluationError(
                    f"{record.path}@{condition}: the first pair compares {compared}; name the same in all"
                )
    rows = [
        (a if a == b else f"{a} / {b}", _compare([(one, other) for (one, _), (other, _) in sides], (a, b)))
        for a, b in named
    ]
    if len(sides) == 1:
        return rows
    adjusted = holm([row.p for _, row in rows if row.p is not None])
    return [(name, replace(row, p=p)) for (name, row), p in zip(rows, adjusted, strict=True)]


def _compare(
    records: Sequence[tuple[EvaluationRecord, EvaluationRecord]], conditions: tuple[str, str]
) -> PairedComparison:
    """Raises :class:`EvaluationError`, naming the first task that differs, and where all are lost."""
    pairs, single = [], True
    for pair in records:
        both = [record.successes(condition) for record, condition in zip(pair, conditions, strict=True)]
        names = [f"{record.path}@{condition}" for record, condition in zip(pair, conditions, strict=True)]
        check_tasks(list(both[0]), list(both[1]), (names[0], names[1]))
        first, second = ({task: fmean(wins) if wins else None for task, wins in each.items()} for each in both)
        if all(None in (first[task], second[task]) for task in first):
            raise EvaluationError(f"no task has an episode in both {names[0]} and {names[1]}: all others are lost")
        pairs.append((first, second))
        single &= all(len(wins) <= 1 for each in both for wins in each.values())
    compared = compare(pairs, single=single)
    assert compared is not None  # every pair has a task that neither lost
    return compared
