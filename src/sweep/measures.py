"""What a run has: success and costs by their names in tables; turns, rewards and seconds, each agent's reward over
training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Literal

from ..runs.run import RunReader

Axis = Literal["completions", "tokens", "steps"]

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
