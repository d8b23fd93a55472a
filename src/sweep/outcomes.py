"""Results by task, of an evaluation, packed for files, and their means over seeds; and the learning curve of a run,
read off at equal budgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import pairwise
from statistics import fmean
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ..evaluation.statistics import DIFFERENCE, SHARE, Estimate, hierarchical_estimate
from ..runs.run import RunReader
from .measures import Axis


@dataclass(frozen=True)
class Outcomes:
    """The result of each task, in their order: success, or a mean of several; None where the episode was lost.

    ``tasks`` is a hash of the tasks' names: where it is equal, the tasks are the same.
    """

    tasks: str
    values: tuple[float | None, ...]

    @classmethod
    def of(cls, episodes: Iterable[Mapping[str, Any]]) -> Outcomes:
        """Of ``episodes`` with ``task_id``, ``success`` and, where it was lost, ``lost``."""
        rows = [(str(row["task_id"]), None if row.get("lost") else float(row["success"])) for row in episodes]
        names = "\n".join(name for name, _ in rows)
        return cls(blake2b(names.encode(), digest_size=6).hexdigest(), tuple(value for _, value in rows))

    @property
    def mean(self) -> float:
        return fmean(value for value in self.values if value is not None)

    @property
    def array(self) -> NDArray[np.float64]:
        """(tasks,); not a number where the episode was lost."""
        return np.array([np.nan if value is None else value for value in self.values], dtype=np.float64)

    def packed(self) -> dict[str, Any]:
        """For JSON: successes as the bits of a hexadecimal number, the first task the highest; lost tasks by place."""
        bits = "".join("1" if value else "0" for value in self.values)
        lost = [place for place, value in enumerate(self.values) if value is None]
        packed = {"tasks": self.tasks, "count": len(bits), "bits": f"{int(bits, 2):x}"}
        return packed | ({"lost": lost} if lost else {})

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Outcomes:
        """Raises ``KeyError`` and ``ValueError`` for what :meth:`packed` did not write."""
        bits, lost = f"{int(packed['bits'], 16):0{packed['count']}b}", set(packed.get("lost", ()))
        if len(bits) != packed["count"]:
            raise ValueError(f"{len(bits)} outcomes of {packed['count']} tasks")
        values = (None if place in lost else float(bit) for place, bit in enumerate(bits))
        return cls(packed["tasks"], tuple(values))


def combined(terms: Sequence[tuple[float, Outcomes]]) -> Outcomes:
    """The weighted sum of outcomes of the same tasks; a task that one of them lost is lost."""
    total = np.sum([weight * outcomes.array for weight, outcomes in terms], axis=0)
    return Outcomes(terms[0][1].tasks, tuple(None if np.isnan(value) else float(value) for value in total))


def mean_over_seeds(by_seed: Sequence[Outcomes], bounds: tuple[float, float] = SHARE) -> Estimate | None:
    """One of ``by_seed`` per seed; see :func:`..evaluation.statistics.hierarchical_estimate`."""
    return hierarchical_estimate([one.array for one in by_seed], crossed=_crossed(by_seed), bounds=bounds)


def difference_over_seeds(pairs: Sequence[tuple[Outcomes, Outcomes]]) -> Estimate | None:
    """The first less the second of each seed's pair: task by task where both have the same tasks."""
    firsts, seconds = [a for a, _ in pairs], [b for _, b in pairs]
    if all(a.tasks == b.tasks for a, b in pairs):
        return mean_over_seeds([combined([(1.0, a), (-1.0, b)]) for a, b in pairs], DIFFERENCE)
    values, less = ([one.array for one in side] for side in (firsts, seconds))
    return hierarchical_estimate(values, less, crossed=_crossed(firsts) and _crossed(seconds), bounds=DIFFERENCE)


def _crossed(by_seed: Sequence[Outcomes]) -> bool:
    return len({one.tasks for one in by_seed}) == 1


AXES: tuple[Axis, ...] = get_args(Axis)


@dataclass(frozen=True)
class Point:
    """A validation, and what training had cost until then: completions and tokens, and optimizer ``steps`` per policy
    (their mean over policies).
    """

    iteration: int
    completions: float
    tokens: float
    steps: float
    outcomes: Outcomes

    def packed(self) -> dict[str, Any]:
        return asdict(self) | {"outcomes": self.outcomes.packed()}

    @classmethod
    def unpacked(cls, packed: dict[str, Any]) -> Point:
        return cls(**packed | {"outcomes": Outcomes.unpacked(packed["outcomes"])})


Curve = Sequence[Point]


def curve_of(run: RunReader) -> list[Point]:
    """The validations of ``run`` in their order; the first before training, where the run has it
    (``loop.validate_first``).
    """
    spent = {"completions": 0.0, "tokens": 0.0, "steps": 0.0}
    costs = {0: dict(spent)}
    for row in run.rows:
        # Those of policies alone: critics have steps of their own, critic/NAME/optimizer_steps.
        steps = [row[key] for key in row if key.startswith("train/") and key.endswith("/optimizer_steps")]
        spent["completions"] += row.get("rollout/completions", 0)
        spent["tokens"] += row.get("rollout/tokens", 0)
        spent["steps"] += fmean(steps) if steps else 0
        costs[row["iteration"]] = dict(spent)
    files = {file.iteration: file for file in run.episode_files.values() if file.split == "validation"}
    points = ((i, files[i].episodes) for i in sorted(costs) if i in files)
    return [Point(i, **costs[i], outcomes=Outcomes.of(episodes)) for i, episodes in points if episodes]


def reached(curve: Curve, axis: Axis) -> float:
    """The last point's budget."""
    return float(getattr(curve[-1], axis))


def value_at(curve: Curve, axis: Axis, budget: float) -> Outcomes | None:
    """The outcomes at ``budget``, interpolated linearly between two validations; None beyond the curve's ends."""
    for before, after in pairwise(curve):
        left, right = getattr(before, axis), getattr(after, axis)
        if left <= budget <= right:
            share = (budget - left) / (right - left) if right > left else 1.0
            return combined([(1 - share, before.outcomes), (share, after.outcomes)])
    return None


def area(curve: Curve, axis: Axis, budget: float) -> Outcomes | None:
    """The mean of the curve from 0 to ``budget``, by the trapezoidal rule; None where the curve does not reach from one
    to the other.
    """
    last = value_at(curve, axis, budget)
    if last is None or getattr(curve[0], axis) > 0 or budget <= 0:
        return None
    inside = [(getattr(point, axis), point.outcomes) for point in curve if getattr(point, axis) < budget]
    terms: list[tuple[float, Outcomes]] = []
    for (left, before), (right, after) in pairwise([*inside, (budget, last)]):
        weight = (right - left) / (2 * budget)
        terms += [(weight, before), (weight, after)]
    return combined(terms)


def completions_to(curve: Curve, threshold: float) -> float | None:
    """The completions at which the curve first has a mean success of ``threshold``, interpolated; None where it never
    has.
    """
    previous: tuple[float, float] | None = None
    for point in curve:
        success = point.outcomes.mean
        if success >= threshold:
            if previous is None:
                return point.completions
            spent, before = previous
            return spent + (point.completions - spent) * (threshold - before) / (success - before)
        previous = point.completions, success
    return None


def common_budgets(curves: Iterable[Curve]) -> dict[Axis, float]:
    """On each axis the largest budget that every curve reaches."""
    known = list(curves)
    return {axis: min(reached(curve, axis) for curve in known) for axis in AXES} if known and all(known) else {}


Budgets = dict[Axis, float]


def with_readings(
    rows: Sequence[dict[str, Any]], threshold: float | None
) -> tuple[list[dict[str, Any]], dict[str, Budgets]]:
    """The rows of a table with what their curves have at common budgets, and these budgets by variant.

    ``at_AXIS`` is the success on validation tasks at the largest budget of completions, tokens or optimizer steps that
    all finished runs of a variant reach, ``area`` the mean of the curve up to that number of completions, and
    ``to_threshold`` the completions at which success is first ``threshold``.  None of it is there where a finished run
    has no curve.
    """
    budgets, result = dict[str, Budgets](), []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        curves = [row["curve"] for row in rows if row["variant"] == variant and row["status"] == "finished"]
        budgets[variant] = common_budgets(curves)
    for row in rows:
        own, curve = budgets[row["variant"]], row["curve"]
        if not own or row["status"] != "finished":
            result.append(row)
            continue
        readings = {f"at_{axis}": value_at(curve, axis, own[axis]) for axis in AXES}
        readings["area"] = area(curve, "completions", own["completions"])
        outcomes = {name: value for name, value in readings.items() if value is not None}
        figures = {name: value.mean for name, value in outcomes.items()}
        to_threshold = None if threshold is None else completions_to(curve, threshold)
        more = {"to_threshold": to_threshold, "outcomes": row["outcomes"] | outcomes}
        result.append(row | figures | more)
    return result, {variant: own for variant, own in budgets.items() if own}
