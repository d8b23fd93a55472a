"""Write `docs/results/base_models.md`: what the untrained teams solve in many attempts, and trained teams beside them.

From the evaluations in `docs/results/evaluations/`, which ``keep_evaluation.py`` has put there.  ``make results`` runs
this; ``tests/evaluation/test_kept_evaluations.py`` checks that it was run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module

from troupe.evaluation.against_base import AgainstBase, Curve, Successes, against_base, curve
from troupe.evaluation.statistics import holm
from troupe.models.bases.base_models import FOLDER
from troupe.setup.composition import choices
from troupe.sweep.tables import markdown
from troupe.sweep.verdicts import LEVEL

RESULTS = Path(__file__).parent.parent / "results"
PAGE = RESULTS / "base_models.md"
KS = (1, 8, 32, 256)
TEAM_HEADS = (
    *("experiment", "run", "trained pass@1", "base pass@k", "difference, paired", "p, Holm", "trained is"),
    *("unsolved by the base, gained", "flawed lessons", "commit"),
)

DEFAULTS = {"env.tool_view=map", "env.planner_view=local", "env.horizon=1"}
"""Overrides of sweeps that say what their worlds have anyway at laptop scale."""

HEAD = """# What the base models can do

Training may only make likely what the base model could already sample. So beside a trained figure belongs the base
model's pass@k: the probability that at least one of k attempts solves a task
([how](../evaluation.md#beside-many-attempts-of-the-base)). All at temperature 1, with the prompts and token limits of
training, on held-out tasks; 95 % bootstrap intervals over tasks. *Above* or *below*: one attempt of the trained team
against 256 of its base, with a p-value of at most 0.05 after Holm's correction for all of the page (Student's t over
tasks, two-sided). That depends on the 256: [with more attempts](base_reach.md) the base is ahead again in three worlds.
*Flawed lessons*: the last demonstrations that the base learned from had planted mistakes, so that training can undo
them; *no*: it lacks a skill. Written by `make results` from `docs/results/evaluations/`.

## Untrained teams
"""


def successes(kept: dict[str, Any]) -> Successes:
    """Of each task, in a fixed order, which of its episodes were solved; no episode was lost."""
    if kept["lost"]:
        raise ValueError(f"{kept['experiment']}: {kept['lost']} episodes were lost")
    return {str(i): [True] * n + [False] * (kept["episodes"] - n) for i, n in enumerate(kept["solved"])}


def share(points: Curve, k: int) -> str:
    if k not in points:
        return ""
    value, (low, high) = points[k]
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def command(kept: dict[str, Any]) -> str:
    """What plays the evaluation."""
    words = [f"exp={kept['experiment']}"] if kept["run"] is None else ["run=DIR", f"checkpoint={kept['checkpoint']}"]
    words += [f"tasks={len(kept['solved'])} samples={kept['episodes']} temperature=1"]
    words += [f"overrides='{json.dumps(kept['overrides'])}'"] if kept["overrides"] else []
    return " ".join(["make eval", *words])


def team(kept: dict[str, Any], base: dict[str, Any]) -> str:
    """What ``kept`` played; a trained run has the overrides of its base in its own configuration."""
    return team_name(kept["experiment"], base["overrides"])


def team_name(experiment: str, overrides: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in (experiment, *overrides))


def untrained(kept: dict[str, Any]) -> list[str]:
    points = curve(successes(kept))
    shares = (share(points, k) for k in KS)
    lessons = flawed_lessons(kept["experiment"], *kept["overrides"])
    return [team(kept, kept), str(len(kept["solved"])), *shares, lessons, kept["commit"][:7], f"`{command(kept)}`"]


@cache
def flawed_lessons(experiment: str, *overrides: str) -> str:
    """Whether the last demonstrations of the shipped base models had planted mistakes; "" of others."""
    if experiment not in choices("experiment"):
        return ""
    with initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("train", overrides=[f"experiment={experiment}", *overrides])
    recipes = [Path(str(FOLDER)) / policy.base / "recipe.json" for policy in cfg.policies.values()]
    if not all(file.exists() for file in recipes):
        return ""
    flawed = [json.loads(file.read_text(encoding="utf-8"))["flawed_steps"] > 0 for file in recipes]
    return "yes" if any(flawed) else "no"


def compared(name: str, kept: dict[str, Any], base: dict[str, Any]) -> AgainstBase:
    if kept["tasks"] != base["tasks"]:
        raise ValueError(f"{name} and its base have different tasks")
    return against_base(successes(base), successes(kept))


def trained(kept: dict[str, Any], base: dict[str, Any], found: AgainstBase, p_value: float) -> list[str]:
    """``p_value`` is corrected for all comparisons of the page."""
    low, high = found.interval
    verdict = "undecided" if p_value > LEVEL else "above" if found.difference > 0 else "below"
    return [
        team(kept, base),
        f"`{kept['run']}`",
        share(found.trained, 1),
        f"@{base['episodes']}: {share(found.base, base['episodes'])}",
        f"{found.difference:+.3f} ({low:+.3f} to {high:+.3f})",
        f"{p_value:.2g}",
        f"**{verdict}**",
        f"{found.gained} of {found.unsolved}",
        flawed_lessons(base["experiment"], *base["overrides"]),
        kept["commit"][:7],
    ]


def teams(results: Path = RESULTS) -> list[list[str]]:
    """A line per trained team, in the order of their names."""
    kept = _kept(results)
    found = {name: compared(name, each, kept[each["base"]]) for name, each in kept.items() if each["base"]}
    adjusted = holm([each.p_value for each in found.values()])
    return [
        trained(kept[name], kept[kept[name]["base"]], each, p_value)
        for (name, each), p_value in zip(found.items(), adjusted, strict=True)
    ]


def bases(results: Path = RESULTS) -> dict[tuple[str, frozenset[str]], Curve]:
    """pass@k of each untrained team, by experiment and overrides of the world."""
    return {
        (kept["experiment"], frozenset(kept["overrides"])): curve(successes(kept))
        for kept in _kept(results).values()
        if kept["base"] is None
    }


def pass_at_256(results: Path = RESULTS) -> dict[tuple[str, frozenset[str]], str]:
    """Of each untrained team, by experiment and overrides of the world; "" where it had fewer attempts."""
    return {name: share(points, 256) for name, points in bases(results).items()}


def team_of(run: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    """The untrained team of a sweep's run: experiment, and overrides of the world.

    Before training a team with shared weights is one with specialised weights.
    """
    words = {word for word in run["overrides"].split() if word.startswith("env.")}
    return Path(run["run"]).parent.name.replace("_shared", "_specialized"), frozenset(words - DEFAULTS)


def page(results: Path = RESULTS) -> str:
    lines = [untrained(each) for each in _kept(results).values() if each["base"] is None]
    heads = ["team", "tasks", *(f"pass@{k}" for k in KS), "flawed lessons", "commit", "command"]
    text = HEAD + "\n" + markdown(heads, lines)
    if lines := teams(results):
        text += "\n## Trained teams beside them\n\n" + markdown(TEAM_HEADS, lines)
    return text


def _kept(results: Path) -> dict[str, dict[str, Any]]:
    files = sorted((results / "evaluations").glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
