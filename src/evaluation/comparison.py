"""Evaluations on the same tasks, compared task by task: two, or those of two settings over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from .records import EvaluationError, EvaluationRecord, locate
from .statistics import DIFFERENCE, Estimate, bootstrap_interval, hierarchical_estimate, holm, mcnemar, two_sided


@dataclass(frozen=True)
class Comparison:
    """Two conditions on the same tasks, without the ``lost`` ones, of which one side has lost every episode.

    ``first`` and ``second`` are mean success; ``difference`` is second less first with ``interval``, its 95 % bootstrap
    interval over tasks.  ``only_first`` and ``only_second`` count tasks that one solved and the other did not, ``p`` is
    McNemar's; all three None where a task has several samples.
    """

    tasks: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    only_first: int | None = None
    only_second: int | None = None
    p: float | None = None
    lost: int = 0


def compare(first: Mapping[str, list[bool]], second: Mapping[str, list[bool]], names: tuple[str, str]) -> Comparison:
    """``first`` and ``second`` map each task to the success of each of its samples.

    Raises :class:`EvaluationError`, naming the first task that differs, where the tasks are not the same, and where all
    are lost.
    """
    check_tasks(list(first), list(second), names)
    pairs = [(fmean(first[task]), fmean(second[task])) for task in first if first[task] and second[task]]
    if not pairs:
        raise EvaluationError(f"no task has an episode in both {names[0]} and {names[1]}: all others are lost")
    differences = [b - a for a, b in pairs]
    means = (len(pairs), fmean(a for a, _ in pairs), fmean(b for _, b in pairs), fmean(differences))
    lost = len(first) - len(pairs)
    interval = bootstrap_interval(differences, DIFFERENCE)
    if any(len(samples) > 1 for samples in [*first.values(), *second.values()]):
        return Comparison(*means, interval, lost=lost)
    only_first, only_second = differences.count(-1), differences.count(1)
    return Comparison(*means, interval, only_first, only_second, mcnemar(only_first, only_second), lost)


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


def comparisons(one: str, other: str) -> list[tuple[str, Comparison]]:
    """The comparisons of ``one`` and ``other`` (``FOLDER[@CONDITION]``), by name.  Raises :class:`EvaluationError`."""
    first, second = locate(one), locate(other)
    rows = []
    for a, b in condition_pairs(first, second):
        names = (f"{first[0].path}@{a}", f"{second[0].path}@{b}")
        rows.append((a if a == b else f"{a} / {b}", compare(first[0].successes(a), second[0].successes(b), names)))
    return rows


@dataclass(frozen=True)
class SeedComparison:
    """Two settings of ``seeds`` evaluations each, paired by their order and by task.

    ``first`` and ``second`` are mean success over seeds; ``difference`` is second less first with ``interval``, its
    95 % interval by a hierarchical bootstrap over seeds and tasks.  ``p`` is two-sided, corrected by Holm for the
    conditions that are compared together.
    """

    seeds: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    p: float


def comparisons_over_seeds(ones: Sequence[str], others: Sequence[str]) -> list[tuple[str, SeedComparison]]:
    """The comparisons of ``ones`` and ``others`` (``FOLDER[@CONDITION]``, one per seed, in the same order), by the
    name of the condition.  The two of a pair need the same tasks; other pairs may have others.

    Raises :class:`EvaluationError` where the two sides differ in number, or a pair has no tasks in common, and for a
    condition that is not the first pair's.
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
    by_condition = [[_by_task(first, second, names) for (first, _), (second, _) in sides] for names in named]
    estimates = [_estimate(pairs) for pairs in by_condition]
    p_values = holm([two_sided(each) for each in estimates])
    rows = []
    for (a, b), pairs, each, p in zip(named, by_condition, estimates, p_values, strict=True):
        first, second = (fmean(float(np.nanmean(one)) for one in side) for side in _sides(pairs))
        row = SeedComparison(len(sides), first, second, each.mean, each.interval, p)
        rows.append((a if a == b else f"{a} / {b}", row))
    return rows


@dataclass(frozen=True)
class Pair:
    """The ``tasks`` of two evaluations, and on each side the mean success of each, (tasks,); not a number where all of
    a task's episodes are lost."""

    tasks: tuple[str, ...]
    first: NDArray[np.float64]
    second: NDArray[np.float64]


def _sides(pairs: Sequence[Pair]) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    return [pair.first for pair in pairs], [pair.second for pair in pairs]


def _estimate(pairs: Sequence[Pair]) -> Estimate:
    """Of the differences; there are two pairs or more."""
    crossed = len({pair.tasks for pair in pairs}) == 1
    estimate = hierarchical_estimate([pair.second - pair.first for pair in pairs], crossed=crossed, bounds=DIFFERENCE)
    assert estimate is not None
    return estimate


def _by_task(first: EvaluationRecord, second: EvaluationRecord, names: tuple[str, str]) -> Pair:
    """Raises :class:`EvaluationError` where the tasks differ."""
    one, other = first.successes(names[0]), second.successes(names[1])
    check_tasks(list(one), list(other), (f"{first.path}@{names[0]}", f"{second.path}@{names[1]}"))
    return Pair(tuple(one), _means(one), _means(other))


def _means(successes: Mapping[str, Sequence[bool]]) -> NDArray[np.float64]:
    return np.array([fmean(wins) if wins else np.nan for wins in successes.values()])
