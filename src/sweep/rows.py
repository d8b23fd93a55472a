"""Runs -> rows of tables: one per run, and one per setting over its seeds.  Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from ..evaluation.statistics import seeds_estimate
from ..runs.fingerprint import evaluation_keys, flat, without_excluded
from ..runs.run import RunReader
from .measures import COSTS, MEASURES, METRICS, READINGS
from .outcomes import Outcomes, curve_of, mean_over_seeds

NESTED = ("outcomes", "curve", "config")
"""The fields of a row that are no figures: results by task of each metric, the learning curve, and the leaves of the
configuration on which training or evaluation depends."""

TableRow = dict[str, Any]


@dataclass(frozen=True)
class SweepJob:
    """One run of a sweep's plan.

    ``setting`` is compared with other settings; ``variant`` holds the overrides that the command line varies besides,
    "" where there are none.  ``training`` is the training hash, ``evaluation`` the keys that decide how the run is
    evaluated (:func:`~troupe.runs.fingerprint.evaluation_keys`), ``completions`` those of training, at the most.
    """

    setting: str
    variant: str
    seed: int
    overrides: tuple[str, ...]
    training: str
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    completions: float = 0.0


def row_of(job: SweepJob, run: RunReader | None, status: str, note: str = "") -> TableRow:
    """``run`` is the finished run of ``job``, or None."""
    row: TableRow = {"setting": job.setting, "variant": job.variant, "seed": job.seed, "status": status}
    stale = run.stale(job.evaluation) if run else ()
    row["stale"] = " and ".join(stale)
    figures = run.summary | further_figures(run) if run else {}
    for name, prefix in METRICS.items():
        low, high = figures.get(f"{prefix}/success_ci95", (None, None))
        row |= {name: figures.get(f"{prefix}/success"), f"{name}_low": low, f"{name}_high": high}
        row[f"{name}_episodes"] = figures.get(f"{prefix}/episodes")
    row |= {name: figures.get(key) for name, key in COSTS.items()}
    row["sealed_seed"] = figures.get("sealed/task_seed")
    row |= {"code": run.code if run else None, "commit": run.versions.get("commit") if run else None}
    row |= {"training": job.training, "run": str(run.path) if run else None}
    difference = evaluation_difference(job, run.config) if run and "evaluation" in stale else ""
    row |= {"overrides": " ".join(job.overrides), "note": note or difference}
    row |= {"outcomes": outcomes_of(run) if run else {}, "curve": curve_of(run) if run else []}
    return row | {"config": dict(flat(without_excluded(run.config))) if run else {}}


def without_metric(row: TableRow, name: str) -> TableRow:
    """``row`` without the success ``name`` (:data:`METRICS`), its interval and its results by task."""
    outcomes = {key: value for key, value in row["outcomes"].items() if key != name}
    figures = (key for key in row if key == name or key.startswith(f"{name}_"))
    return row | dict.fromkeys(figures) | {"outcomes": outcomes}


def further_figures(run: RunReader) -> dict[str, Any]:
    """The figures of the evaluations that a sweep made of the run, under flat keys as in its summary."""
    return {f"{name}/{key}": value for name, file in run.of_sweeps.items() for key, value in file.items()}


def outcomes_of(run: RunReader) -> dict[str, Outcomes]:
    """The results by task of each metric of a finished run, without those whose episodes are not there."""
    last = f"test_{run.summary.get('iterations', 0):05d}"
    best = "test_best" if "test_best" in run.episode_files else last  # the last weights may be the best ones
    files = {"before": "test_00000", "after": last, "best": best}
    known = {name: run.episode_files[file].episodes for name, file in files.items() if file in run.episode_files}
    outcomes = {name: Outcomes.of(episodes) for name, episodes in known.items() if episodes}
    packed = {name: file["outcomes"] for name, file in run.of_sweeps.items() if "outcomes" in file}
    return outcomes | {name: Outcomes.unpacked(value) for name, value in packed.items()}


def evaluation_difference(job: SweepJob, config: Mapping[str, Any]) -> str:
    """How the run of ``config`` was evaluated otherwise than ``job`` asks, in words."""
    keys = evaluation_keys(config)
    parts = [f"{key}={keys.get(key)}, asked {value}" for key, value in job.evaluation.items() if keys.get(key) != value]
    return "evaluated with " + "; ".join(parts) if parts else "evaluated otherwise"


def aggregate(rows: Iterable[TableRow]) -> list[TableRow]:
    """One row per setting and variant, in the order of first appearance.

    For each success: ``*_mean`` over seeds with its 95 % interval over seeds and tasks (``*_low``, ``*_high``; None for
    one seed, and where the episodes of a run are not there; :mod:`.outcomes`).  Costs are means.  ``n`` runs are
    finished, of ``runs``; ``stale`` of them are.  ``to_threshold`` is the median over seeds, None where half of them
    do not reach it; ``reached`` do.
    """
    groups: dict[tuple[str, str], list[TableRow]] = {}
    for row in rows:
        groups.setdefault((row["setting"], row["variant"]), []).append(row)
    return [_aggregate(setting, variant, group) for (setting, variant), group in groups.items()]


def _aggregate(setting: str, variant: str, rows: Sequence[TableRow]) -> TableRow:
    finished = [row for row in rows if row["status"] == "finished"]
    result: TableRow = {"setting": setting, "variant": variant, "runs": len(rows), "n": len(finished)}
    result["stale"] = sum(bool(row["stale"]) for row in finished)
    for name in (*METRICS, *READINGS):
        estimate = estimated(finished, name)
        result |= {f"{name}_{part}": estimate[part] for part in ("mean", "low", "high")}
    completions = [row["to_threshold"] for row in finished if "to_threshold" in row]
    result["reached"] = sum(value is not None for value in completions)
    middle = median(math.inf if value is None else value for value in completions) if completions else math.inf
    result["to_threshold"] = middle if math.isfinite(middle) else None
    for name in COSTS:
        values = [row[name] for row in finished if row[name] is not None]
        result[name] = fmean(values) if values else None
    return result


def estimated(rows: Iterable[TableRow], name: str) -> TableRow:
    """Of the ``n`` finished runs that have the success or measure ``name`` its ``mean`` over seeds, with the 95 %
    interval from ``low`` to ``high``: over seeds and tasks, of measures over seeds alone; None where there is none.
    ``stale`` of them are.
    """
    known = [row for row in rows if row["status"] == "finished" and row.get(name) is not None]
    values, outcomes = [float(row[name]) for row in known], [row["outcomes"].get(name) for row in known]
    estimate = None
    if name in MEASURES:
        estimate = seeds_estimate(values)
    elif known and None not in outcomes:
        estimate = mean_over_seeds(outcomes)
    low, high = estimate.interval if estimate else (None, None)
    mean, stale = fmean(values) if values else None, sum(bool(row["stale"]) for row in known)
    return {"mean": mean, "low": low, "high": high, "n": len(values), "stale": stale}
