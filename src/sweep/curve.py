"""The learning curve of a run, and what is read off it at equal budgets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal

from ..runs.run import Run
from .outcomes import Outcomes, combined

Axis = Literal["completions", "tokens", "steps"]
AXES: tuple[Axis, ...] = ("completions", "tokens", "steps")


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


def curve_of(run: Run) -> list[Point]:
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
