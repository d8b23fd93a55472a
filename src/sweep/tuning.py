"""The choice of each setting's point of the grid, from the runs that tune it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from .record import SweepRecord


def choices(tuning: SweepRecord, grid: Mapping[str, Sequence[object]]) -> dict[str, list[str]]:
    """The overrides of the grid's point with the highest success on validation after training, mean over seeds, by
    setting; of equal ones the first of the grid.  A setting of which a run is missing is left out.
    """
    scores: dict[str, dict[tuple[str, ...], list[float | None]]] = {}
    for job, row in zip(tuning.jobs, tuning.rows(), strict=True):
        point = tuple(text for text in job.overrides if text.partition("=")[0] in grid)
        success = row["curve"][-1].outcomes.mean if row["status"] == "finished" and row["curve"] else None
        scores.setdefault(job.setting, {}).setdefault(point, []).append(success)
    chosen = {}
    for setting, by_point in scores.items():
        means: dict[tuple[str, ...], float] = {}
        for point, values in by_point.items():
            known = [value for value in values if value is not None]
            if len(known) == len(values):
                means[point] = fmean(known)
        if len(means) == len(by_point):
            best, _ = max(means.items(), key=lambda pair: pair[1])  # the first of equal ones
            chosen[setting] = list(best)
    return chosen
