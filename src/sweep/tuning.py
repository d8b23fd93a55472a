"""The choice of each setting's point of the grid, from the runs that tune it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from .record import SweepRecord


def choices(tuning: SweepRecord, grid: Mapping[str, Sequence[object]]) -> dict[str, list[str]]:
    """The overrides of the grid's point with the highest success on validation after training, mean over seeds, by
    setting; of equal ones that with the highest mean over all settings: a setting that learns nothing at any point
    shall not end with one that is bad for all.  A setting of which a run is missing is left out.
    """
    scores: dict[str, dict[tuple[str, ...], list[float | None]]] = {}
    for job, row in zip(tuning.jobs, tuning.rows(), strict=True):
        point = tuple(text for text in job.overrides if text.partition("=")[0] in grid)
        success = row["curve"][-1].outcomes.mean if row["status"] == "finished" and row["curve"] else None
        scores.setdefault(job.setting, {}).setdefault(point, []).append(success)
    means: dict[str, dict[tuple[str, ...], float]] = {}
    for setting, by_point in scores.items():
        known = {point: [value for value in values if value is not None] for point, values in by_point.items()}
        if all(len(known[point]) == len(values) for point, values in by_point.items()):
            means[setting] = {point: fmean(values) for point, values in known.items()}
    points = next(iter(means.values()), {})
    overall = {point: fmean(each[point] for each in means.values()) for point in points}
    chosen = {}
    for setting, mean_by_point in means.items():
        _, _, best = max((mean, overall[point], point) for point, mean in mean_by_point.items())
        chosen[setting] = list(best)
    return chosen
