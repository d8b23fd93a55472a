"""What a table would take at the papers' scale, estimated without a GPU.

Per run, with P parameters of a policy, C completions, p tokens per prompt and a per answer::

    generating:  2 P (s p + a) C  operations      s = 1 / K where a prompt is read once for its K candidates
    learning:    8 P (p + a) C    operations      6 and, with gradient checkpointing, a second forward pass
    GPU-hours:   OVERHEAD * (generating / (PEAK * GENERATING) + learning / (PEAK * LEARNING)) / 3600

K independent episodes (MAS-GRPO, Dr.MAS, GiGPO, GRPO) share the prompt of their first message alone: s is 1 of all
others.  C counts every turn of every tree, which solved tasks do not need: so far the estimate is an upper bound.  All
constants are assumptions; nothing was measured on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from .plan import PartPlan
from .teams import cells_of

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
    f"GPU-hours per run = {OVERHEAD} P (C (2 (s p + a) / ({GENERATING} F) + 8 (p + a) / ({LEARNING} F)) + "
    f"E 2 (p + a) / ({GENERATING} F)) / 3600: P parameters of the model, C completions of training, E of evaluations, "
    "p and a tokens per prompt and answer, F operations per second; s = 1/K where K candidates answer one prompt, "
    "and 1 after the first message of K independent episodes"
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


@dataclass(frozen=True)
class TeamHours:
    """``evaluations`` of teams of finished runs, in all ``hours`` of one GPU."""

    part: str
    variant: str
    evaluations: int
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


def team_hours(plan: PartPlan) -> list[TeamHours]:
    """By variant; none without teams.  Every agent of a team is taken to have the largest model of its run."""
    configs = {(job.setting, job.variant): plan.configs[job.training] for job in plan.record.jobs}
    groups: dict[str, list[float]] = {}
    for cell in cells_of(plan):
        config = configs[plan.teams[cell.team].setting, cell.variant]
        groups.setdefault(cell.variant, []).append(evaluation_hours(config))
    return [TeamHours(plan.name, variant, len(hours), sum(hours)) for variant, hours in groups.items()]


def evaluation_hours(config: Mapping[str, Any]) -> float:
    """Hours of one GPU of one evaluation on the test tasks, at the most."""
    policies = [policy for policy in config["policies"].values() if policy.get("base") is not None]
    each = max((2 * parameters(policy["base"]) * (PROMPT + _answer(policy)) for policy in policies), default=0.0)
    completions = config["loop"]["test_tasks"] * config["env"].get("horizon", 1) * len(config["team"])
    return OVERHEAD * each * completions / (PEAK * GENERATING) / 3600


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
    completions, evaluated, agents = completions_of(config), evaluated_of(config), len(config["team"])
    seconds = 0.0
    for place, name in enumerate(config["team"].values()):
        policy = config["policies"][name]
        if policy.get("base") is None:  # a scripted one has no model
            continue
        size, answer = parameters(policy["base"]), _answer(policy)
        generating = 2 * size * (_read(config, place) * PROMPT + answer) * completions / agents
        generating += 2 * size * (PROMPT + answer) * evaluated / agents
        learns = policy.get("tuning", "full") in ("full", "lora")
        learning = 8 * size * (PROMPT + answer) * completions / agents if learns else 0.0
        seconds += generating / (PEAK * GENERATING) + learning / (PEAK * LEARNING)
    return OVERHEAD * seconds / 3600


def _read(config: Mapping[str, Any], place: int) -> float:
    """How often a prompt is read per completion of the agent at ``place`` of the team: s of the formula."""
    sampler, env = config["algorithm"]["sampler"], config["env"]
    if not sampler["_target_"].endswith("ChainSampler"):
        return float(1 / sampler["k"])
    opens = place == 0 or env.get("order") == "simultaneous"  # the others read what the first one wrote
    first = 1 / env.get("horizon", 1) if opens else 0.0
    return float(first / sampler["k"] + 1 - first)


def _answer(policy: Mapping[str, Any]) -> float:
    """Tokens of an answer: a of the formula."""
    return float(max(128.0, ANSWER * policy["sampling"]["train"]["max_tokens"]))


def parameters(base: str) -> float:
    """Of a model by its name.  Raises :class:`ConfigError`."""
    size = re.search(r"(\d+(?:\.\d+)?)B\b", base)
    if size is None:
        raise ConfigError(f"base={base}: its name does not tell its size, which the estimate of GPU-hours needs")
    return float(size.group(1)) * 1e9


def lines_of(costs: Sequence[SettingHours], teams: Sequence[TeamHours] = ()) -> list[str]:
    """The plan in words."""
    lines = [
        f"  {' '.join(word for word in (cost.part, cost.variant) if word)}, {cost.setting}: {_runs(cost.runs)} "
        f"of at most {cost.completions:,.0f} completions, {_hours(cost.hours)}"
        for cost in costs
    ]
    lines += [
        f"  {' '.join(word for word in (team.part, team.variant) if word)}, teams of finished runs: "
        f"{team.evaluations} evaluations, {_hours(team.hours)}"
        for team in teams
    ]
    return [*lines, f"in all {sum_of(sum(each.runs for each in costs), sum(each.hours for each in costs), teams)}"]


def sum_of(runs: int, hours: float, teams: Sequence[TeamHours]) -> str:
    """``18 runs, 115 GPU-hours, and 216 evaluations of teams, 9.5 GPU-hours``."""
    count = sum(team.evaluations for team in teams)
    played = f", and {count} evaluations of teams, {_hours(sum(team.hours for team in teams))}" if teams else ""
    return f"{_runs(runs)}, {_hours(hours)}{played}"


def _runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"


def _hours(hours: float) -> str:
    return f"{hours:,.{0 if hours >= 10 else 1}f} GPU-hours"
