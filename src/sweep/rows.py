"""Runs -> rows of tables: one per run, and one per setting over its seeds.  Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from ..evaluation.statistics import t_interval, wilson
from ..runs.fingerprint import evaluation_keys, training_keys
from ..runs.run import Run

METRICS = {"before": "eval_before", "after": "eval", "best": "eval_best", "swapped": "swapped"}
"""Success by its name in the tables, with its prefix in ``summary.json`` (``swapped``: in ``swapped.json``)."""

COSTS = {
    "turns": "eval/turns",
    "completions": "train/completions",
    "tokens": "train/tokens",
    "env_steps": "train/env_steps",
    "wall_s": "time/wall_s",
}
"""The columns beside success, with their keys in ``summary.json``; ``turns`` of the last weights on the test split."""

INTERVAL = ("low", "high")
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
    figures = run.summary | swapped_figures(run) if run else {}
    for name, prefix in METRICS.items():
        low, high = figures.get(f"{prefix}/success_ci95", (None, None))
        row |= {name: figures.get(f"{prefix}/success"), f"{name}_low": low, f"{name}_high": high}
        row[f"{name}_episodes"] = figures.get(f"{prefix}/episodes")
    row |= {name: figures.get(key) for name, key in COSTS.items()}
    row |= {"code": run.code if run else None, "training": job.training, "run": str(run.path) if run else None}
    difference = _evaluation_difference(job, run) if run and "evaluation" in stale else ""
    return row | {"overrides": " ".join(job.overrides), "note": note or difference}


def swapped_figures(run: Run) -> dict[str, Any]:
    """The figures of the run with its policies exchanged, under flat keys as in its summary."""
    return {f"swapped/{key}": value for key, value in run.swapped.items()}


def _evaluation_difference(job: SweepJob, run: Run) -> str:
    keys = evaluation_keys(run.config)
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

    For each success: ``*_mean`` over seeds with its 95 % t-interval (``*_low``, ``*_high``; None for one seed), and the
    pooled 95 % Wilson interval over all episodes (``*_pooled_low``, ``*_pooled_high``).  Costs are means.  ``n`` runs
    are finished, of ``runs``; ``stale`` of them are.
    """
    groups: dict[tuple[str, str], list[TableRow]] = {}
    for row in rows:
        groups.setdefault((row["setting"], row["variant"]), []).append(row)
    return [_aggregate(setting, variant, group) for (setting, variant), group in groups.items()]


def _aggregate(setting: str, variant: str, rows: Sequence[TableRow]) -> TableRow:
    finished = [row for row in rows if row["status"] == "finished"]
    result: TableRow = {"setting": setting, "variant": variant, "runs": len(rows), "n": len(finished)}
    result["stale"] = sum(bool(row["stale"]) for row in finished)
    for name in METRICS:
        evaluated = [row for row in finished if row[name] is not None]
        result |= dict.fromkeys(f"{name}_{part}" for part in ("mean", *INTERVAL, "pooled_low", "pooled_high"))
        if not evaluated:
            continue
        values = [row[name] for row in evaluated]
        result[f"{name}_mean"] = fmean(values)
        result |= _bounds(name, t_interval(values))
        if all(row[f"{name}_episodes"] for row in evaluated):
            successes = sum(round(row[name] * row[f"{name}_episodes"]) for row in evaluated)
            result |= _bounds(f"{name}_pooled", wilson(successes, sum(row[f"{name}_episodes"] for row in evaluated)))
    for name in COSTS:
        values = [row[name] for row in finished if row[name] is not None]
        result[name] = fmean(values) if values else None
    return result


def _bounds(name: str, interval: tuple[float, float] | None) -> TableRow:
    return {f"{name}_{end}": value for end, value in zip(INTERVAL, interval or (None, None), strict=True)}
