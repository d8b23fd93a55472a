"""What a table would take at the papers' scale, estimated without a GPU.

Per run, with P parameters of a policy, C completions, p tokens per prompt and a per answer::

    generating:  2 P (p / K + a) C  operations      a prompt is read once for its K candidates
    learning:    8 P (p + a) C      operations      6 and, with gradient checkpointing, a second forward pass
    GPU-hours:   OVERHEAD * (generating / (PEAK * GENERATING) + learning / (PEAK * LEARNING)) / 3600

C counts every turn of every tree, which solved tasks do not need: so far the estimate is an upper bound.  All constants
are assumptions; nothing was measured on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from .plan import PartPlan

PEAK = 989e12
"""Operations per second: an H100's dense bfloat16."""
GENERATING, LEARNING = 0.08, 0.35
"""Shares of the peak that are reached."""
OVERHEAD = 1.5
"""For new weights in the engine, worlds, and waiting."""
PROMPT = 1024
"""p, tokens."""
ANSWER = 0.25
"""a as a share of ``max_tokens``; 128 tokens at the least."""
ASSUMED = (
    f"Assumed: {PEAK / 1e12:.0f} TFLOP/s (H100, bfloat16), of which generating reaches {GENERATING:.0%} and learning "
    f"{LEARNING:.0%}; prompts of {PROMPT} tokens, answers of a quarter of max_tokens; all T turns played; "
    f"a factor of {OVERHEAD} for all else. Not measured on a GPU: expect a factor of three either way."
)
FORMULA = (
    f"GPU-hours per run = {OVERHEAD} P (C (2 (p / K + a) / ({GENERATING} F) + 8 (p + a) / ({LEARNING} F)) + "
    f"E 2 (p + a) / ({GENERATING} F)) / 3600: P parameters of the model, C completions of training, E of evaluations, "
    "K candidates per prompt, p and a tokens per prompt and answer, F operations per second"
)


@dataclass(frozen=True)
class SettingHours:
    """``runs`` of a setting, each of ``completions`` at the most, in all ``hours`` of one GPU."""

    part: str
    setting: str
    variant: str
    runs: int
    completions: float
    hours: float


def gpu_hours(plan: PartPlan) -> list[SettingHours]:
    """By setting and variant.  Raises :class:`ConfigError` for a base model whose name does not tell its size."""
    groups: dict[tuple[str, str], list[str]] = {}
    for job in plan.record.jobs:
        groups.setdefault((job.setting, job.variant), []).append(job.training)
    result = []
    for (setting, variant), hashes in groups.items():
        config = plan.configs[hashes[0]]
        total = sum(run_hours(plan.configs[one]) for one in hashes)
        result.append(SettingHours(plan.name, setting, variant, len(hashes), completions_of(config), total))
    return result


def completions_of(config: Mapping[str, Any]) -> float:
    """The completions of a run, at the most."""
    loop = config["loop"]
    most = float(loop["iterations"] * _per_iteration(config))
    return min(most, loop["completions"]) if loop["completions"] else most


def _per_iteration(config: Mapping[str, Any]) -> int:
    k, turns = config["algorithm"]["sampler"]["k"], config["env"].get("horizon", 1)
    joint = config["algorithm"]["sampler"]["_target_"].rpartition(".")[2].lower().startswith("joint")
    nodes = sum(k**turn for turn in range(turns)) if joint else turns
    return int(config["loop"]["tasks_per_iteration"] * nodes * k * len(config["team"]))


def evaluated_of(config: Mapping[str, Any]) -> float:
    """The completions of a run's evaluations, at the most."""
    loop, turns = config["loop"], config["env"].get("horizon", 1)
    iterations = min(loop["iterations"], -(-completions_of(config) // _per_iteration(config)))
    validations = iterations // loop["eval_every"] * loop["validation_tasks"]
    return float((3 * loop["test_tasks"] + validations) * turns * len(config["team"]))


def run_hours(config: Mapping[str, Any]) -> float:
    """Hours of one GPU."""
    k = config["algorithm"]["sampler"]["k"]
    completions, evaluated, agents = completions_of(config), evaluated_of(config), len(config["team"])
    seconds = 0.0
    for name in config["team"].values():
        policy = config["policies"][name]
        if policy.get("base") is None:  # a scripted one has no model
            continue
        size, answer = parameters(policy["base"]), max(128.0, ANSWER * policy["sampling"]["train"]["max_tokens"])
        generating = 2 * size * (PROMPT / k + answer) * completions / agents
        generating += 2 * size * (PROMPT + answer) * evaluated / agents
        learns = policy.get("tuning", "full") in ("full", "lora")
        learning = 8 * size * (PROMPT + answer) * completions / agents if learns else 0.0
        seconds += generating / (PEAK * GENERATING) + learning / (PEAK * LEARNING)
    return OVERHEAD * seconds / 3600


def parameters(base: str) -> float:
    """Of a model by its name.  Raises :class:`ConfigError`."""
    size = re.search(r"(\d+(?:\.\d+)?)B\b", base)
    if size is None:
        raise ConfigError(f"base={base}: its name does not tell its size, which the estimate of GPU-hours needs")
    return float(size.group(1)) * 1e9


def lines_of(costs: Sequence[SettingHours]) -> list[str]:
    """The plan in words."""
    lines = [
        f"  {' '.join(word for word in (cost.part, cost.variant) if word)}, {cost.setting}: {_runs(cost.runs)} "
        f"of at most {cost.completions:,.0f} completions, {_hours(cost.hours)}"
        for cost in costs
    ]
    return [*lines, f"in all {_runs(sum(each.runs for each in costs))}, {_hours(sum(each.hours for each in costs))}"]


def _runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"


def _hours(hours: float) -> str:
    return f"{hours:,.{0 if hours >= 10 else 1}f} GPU-hours"
