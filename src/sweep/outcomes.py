"""Results by task: of an evaluation, packed for files, and their means over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..evaluation.statistics import DIFFERENCE, SHARE, Estimate, hierarchical_estimate


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
