"""Runs -> tidy rows: one a run, and one a setting over its seeds.  Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from ..evaluation.over_seeds import t_interval
from ..evaluation.statistics import wilson
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
"""What is reported beside success; ``turns`` are those of the last weights on the test split."""

INTERVAL = ("low", "high")
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One run as a sweep asks for it.

    ``setting`` is compared with other settings; ``variant`` names what else was varied on the command line, "" where
    nothing was.  ``training`` is the hash of its training configuration.
    """

    setting: str
    variant: str
    seed: int
    overrides: tuple[str, ...]
    training: str
    evaluation: Mapping[str, Any] = field(default_factory=dict)


def row_of(job: Job, run: Run | None, extra: Mapping[str, Any], status: str, note: str = "") -> Row:
    """``run`` is the finished run of ``job``, or None; ``extra`` are figures beside those of its summary."""
    row: Row = {"setting": job.setting, "variant": job.variant, "seed": job.seed, "status": status}
    stale = run.stale(job.evaluation) if run else ()
    row["stale"] = " and ".join(stale)
    figures = {**run.summary, **extra} if run else {}
    for name, prefix in METRICS.items():
        low, high = figures.get(f"{prefix}/success_ci95", (None, None))
        row |= {name: figures.get(f"{prefix}/success"), f"{name}_low": low, f"{name}_high": high}
        row[f"{name}_episodes"] = figures.get(f"{prefix}/episodes")
    row |= {name: figures.get(key) for name, key in COSTS.items()}
    row |= {"code": run.code if run else None, "training": job.training, "run": str(run.path) if run else None}
    otherwise = _otherwise(job, run) if run and "evaluation" in stale else ""
    return row | {"overrides": " ".join(job.overrides), "note": note or otherwise}


def _otherwise(job: Job, run: Run) -> str:
    had = evaluation_keys(run.config)
    parts = [f"{key}={had.get(key)}, asked {value}" for key, value in job.evaluation.items() if had.get(key) != value]
    return "evaluated with " + "; ".join(parts) if parts else "evaluated otherwise"


def jobs_of(runs: Sequence[Run]) -> list[Job]:
    """Runs as if a sweep had asked for them: a setting is a run's name, a variant what tells runs of a name apart."""
    jobs = []
    for run in runs:
        kin = [training_keys(other.config) for other in runs if other.config["name"] == run.config["name"]]
        mine = training_keys(run.config)
        shared = [key for key in mine if all(key in other for other in kin) and key.split(".")[-1] != "seed"]
        apart = [f"{key}={mine[key]}" for key in shared if any(other[key] != mine[key] for other in kin)]
        setting, seed = run.config["name"], run.config["seed"]
        jobs.append(Job(setting, " ".join(apart), seed, (), run.training, evaluation_keys(run.config)))
    return jobs


def aggregate(rows: Iterable[Row]) -> list[Row]:
    """One row a setting and variant, in the order of first appearance.

    For each success: ``*_mean`` over seeds with its 95 % t-interval (``*_low``, ``*_high``; None for one seed), and the
    pooled 95 % Wilson interval over all episodes (``*_pooled_low``, ``*_pooled_high``).  Costs are means.  ``n`` runs
    are finished, of ``runs``; ``stale`` of them are.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["setting"], row["variant"]), []).append(row)
    return [_aggregated(place, group) for place, group in groups.items()]


def _aggregated(place: tuple[str, str], rows: Sequence[Row]) -> Row:
    finished = [row for row in rows if row["status"] == "finished"]
    result: Row = {"setting": place[0], "variant": place[1], "runs": len(rows), "n": len(finished)}
    result["stale"] = sum(bool(row["stale"]) for row in finished)
    for name in METRICS:
        scored = [row for row in finished if row[name] is not None]
        result |= dict.fromkeys(f"{name}_{part}" for part in ("mean", *INTERVAL, "pooled_low", "pooled_high"))
        if not scored:
            continue
        values = [row[name] for row in scored]
        result[f"{name}_mean"] = fmean(values)
        result |= _bounds(name, t_interval(values))
        if all(row[f"{name}_episodes"] for row in scored):
            successes = sum(round(row[name] * row[f"{name}_episodes"]) for row in scored)
            result |= _bounds(f"{name}_pooled", wilson(successes, sum(row[f"{name}_episodes"] for row in scored)))
    for name in COSTS:
        values = [row[name] for row in finished if row[name] is not None]
        result[name] = fmean(values) if values else None
    return result


def _bounds(name: str, interval: tuple[float, float] | None) -> Row:
    return {f"{name}_{end}": value for end, value in zip(INTERVAL, interval or (None, None), strict=True)}
