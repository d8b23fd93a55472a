"""Runs -> rows of tables: one per run, and one per setting over its seeds.  Pure functions.

What a run has: success and costs by their names in tables; turns, rewards and seconds, each agent's reward over
training.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev
from typing import Any

from ..evaluation.statistics import seeds_estimate
from ..runs.fingerprint import evaluation_keys, flat, without_excluded
from ..runs.run import RunReader
from .outcomes import Axis, Outcomes, curve_of, mean_over_seeds

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
"""Success on validation tasks at common budgets, each with what the budget is of, see :func:`.outcomes.value_at`."""

COSTS = {
    "turns": "eval/turns",
    "completions": "train/completions",
    "tokens": "train/tokens",
    "env_steps": "train/env_steps",
    "wall_s": "time/wall_s",
    "cpu_s": "time/cpu_s",
}
"""The columns beside success, with their keys in ``summary.json``; ``turns`` of the last weights on the test split."""

MEASURES = {
    "turns_before": "turns per episode, untrained",
    "turns_after": "turns per episode, trained",
    "return_before": "return of an episode, untrained",
    "return_after": "return of an episode, trained",
    "role_reward_first": "standardised reward, first fifth of training, of the agent whose reward rises least",
    "role_reward_last": "standardised reward, last fifth of training, of the same agent",
    "rollout_s": "seconds of a rollout",
    "update_s": "seconds of an update",
    "log_rollout_s": "natural logarithm of the seconds of a rollout",
    "log_update_s": "natural logarithm of the seconds of an update",
}
"""Of tables of publications, by name, what each is; of one run each, so that a difference is tested over seeds
alone."""

Series = dict[str, list[float]]
"""Of each agent its mean reward per message by iteration."""


def measures_of(run: RunReader) -> tuple[dict[str, float], Series]:
    """Those of :data:`MEASURES` that ``run`` has, and its rewards over training.

    Return and turns before and after are of the run's own test.  The return is the sum over the steps of an episode of
    the mean reward of the agents that act, where each agent acts in as many steps; steps that nobody judges (drafts of
    a discussion, the first agent of a sequence) add 0.  Rewards over training are standardised per run and agent: less
    their mean over iterations, divided by their standard deviation (0 where it is 0); a last iteration with fewer tasks
    than ``loop.tasks_per_iteration``, which a budget of completions cut short, is left out.  Seconds are means over
    iterations, of the wall.
    """
    values: dict[str, float] = {}
    whole, rows = run.config["loop"]["tasks_per_iteration"], list(run.rows)
    if len(rows) > 1 and rows[-1].get("rollout/tasks", whole) < whole:
        rows.pop()
    series = {
        agent: [float(row[key]) for row in rows if key in row]
        for agent, key in ((agent, f"rollout/{agent}/reward") for agent in run.config["team"])
    }
    series = {agent: rewards for agent, rewards in series.items() if rewards}
    for when, prefix in (("before", "eval_before"), ("after", "eval")):
        rewards = [run.summary.get(f"{prefix}/{agent}/reward") for agent in run.config["team"]]
        known = [float(value) for value in rewards if value is not None]
        steps, episodes = (run.summary.get(f"{prefix}/{name}") for name in ("env_steps", "episodes"))
        if known and steps is not None and episodes:
            values[f"return_{when}"] = fmean(known) * steps / episodes
        values |= {f"turns_{when}": float(turns)} if (turns := run.summary.get(f"{prefix}/turns")) is not None else {}
    if ends := [_ends(standardised(rewards)) for rewards in series.values() if len(rewards) > 1]:
        first, last = min(ends, key=lambda pair: pair[1] - pair[0])
        values |= {"role_reward_first": first, "role_reward_last": last}
    for name in ("rollout_s", "update_s"):
        seconds = [row[f"time/{name}"] for row in run.rows if f"time/{name}" in row]
        if seconds and (mean := fmean(seconds)) > 0:
            values |= {name: mean, f"log_{name}": math.log(mean)}
    return values, series


def standardised(values: Sequence[float]) -> list[float]:
    """Less their mean, divided by their standard deviation; all 0 where that is 0."""
    mean, deviation = fmean(values), pstdev(values)
    return [(value - mean) / deviation if deviation else 0.0 for value in values]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The means of the first and of the last fifth, of one value at the least."""
    part = max(1, len(values) // 5)
    return fmean(values[:part]), fmean(values[-part:])


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
