"""Runs -> rows of tables: one per run, and one per setting over its seeds.  Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from ..runs.fingerprint import evaluation_keys, flat, training_keys, without_excluded
from ..runs.run import Run
from .curve import Axis, curve_of
from .outcomes import Outcomes, mean_over_seeds

METRICS = {"before": "eval_before", "after": "eval", "best": "eval_best", "swapped": "swapped", "sealed": "sealed"}
"""Success by its name in the tables, with its prefix in ``summary.json`` (``swapped`` and ``sealed``: in files of their
own).
"""

READINGS: dict[str, Axis] = {
    "at_completions": "completions",
    "at_tokens": "tokens",
    "at_steps": "steps",
    "area": "completions",
}
"""Success on validation tasks at common budgets, each with what the budget is of, see :mod:`.readings`."""

COSTS = {
    "turns": "eval/turns",
    "completions": "train/completions",
    "tokens": "train/tokens",
    "env_steps": "train/env_steps",
    "wall_s": "time/wall_s",
    "cpu_s": "time/cpu_s",
}
"""The columns beside success, with their keys in ``summary.json``; ``turns`` of the last weights on the test split."""

INTERVAL = ("low", "high")
NESTED = ("outcomes", "curve", "config")
"""The fields of a row that are no figures: results by task of each metric, the learning curve, and the leaves of the
configuration on which training or evaluation depends."""

TableRow = dict[str, Any]


@dataclass(frozen=True)
class SweepJob:
    """One run of a sweep's plan.

    ``setting`` is compared with other settings; ``variant`` holds the overrides that the command line varies besides,
    "" where there are none.  ``training`` is the training hash, ``evaluation`` the keys that decide how the run is
    evaluated (:func:`~troupe.runs.fingerprint.evaluation_keys`).
    """

    setting: str
    variant: str
    seed: int
    overrides: tuple[str, ...]
    training: str
    evaluation: Mapping[str, Any] = field(default_factory=dict)


def row_of(job: SweepJob, run: Run | None, status: str, note: str = "") -> TableRow:
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


def further_figures(run: Run) -> dict[str, Any]:
    """The figures of the evaluations that a sweep made of the run, under flat keys as in its summary."""
    return {f"{name}/{key}": value for name, file in run.of_sweeps.items() for key, value in file.items()}


def outcomes_of(run: Run) -> dict[str, Outcomes]:
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


def jobs_of(runs: Sequence[Run]) -> list[SweepJob]:
    """Runs as the jobs of a sweep: the setting is a run's name, the variant the training keys in which runs of one name
    differ."""
    jobs = []
    for run in runs:
        same_name = [training_keys(other.config) for other in runs if other.config["name"] == run.config["name"]]
        own = training_keys(run.config)
        shared = [key for key in own if all(key in other for other in same_name) and key.split(".")[-1] != "seed"]
        differing = [f"{key}={own[key]}" for key in shared if any(other[key] != own[key] for other in same_name)]
        setting, seed = run.config["name"], run.config["seed"]
        jobs.append(SweepJob(setting, " ".join(differing), seed, (), run.training_hash, evaluation_keys(run.config)))
    return jobs


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
        evaluated = [row for row in finished if row.get(name) is not None]
        result |= dict.fromkeys(f"{name}_{part}" for part in ("mean", *INTERVAL))
        if not evaluated:
            continue
        result[f"{name}_mean"] = fmean(row[name] for row in evaluated)
        if all(name in row["outcomes"] for row in evaluated):
            estimate = mean_over_seeds([row["outcomes"][name] for row in evaluated])
            result |= _bounds(name, estimate.interval if estimate else None)
    completions = [row["to_threshold"] for row in finished if "to_threshold" in row]
    result["reached"] = sum(value is not None for value in completions)
    middle = median(math.inf if value is None else value for value in completions) if completions else math.inf
    result["to_threshold"] = middle if math.isfinite(middle) else None
    for name in COSTS:
        values = [row[name] for row in finished if row[name] is not None]
        result[name] = fmean(values) if values else None
    return result


def _bounds(name: str, interval: tuple[float, float] | None) -> TableRow:
    return {f"{name}_{end}": value for end, value in zip(INTERVAL, interval or (None, None), strict=True)}
