"""Write `docs/results/base_models.md`: what the untrained teams solve in many attempts, and trained teams beside them.

From the evaluations in `docs/results/evaluations/`, which ``keep_evaluation.py`` has put there.  ``make results`` runs
this; ``tests/evaluation/test_kept_evaluations.py`` checks that it was run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from troupe.evaluation.extension import Curve, Successes, curve, extension
from troupe.sweep.tables import markdown

RESULTS = Path(__file__).parent.parent / "results"
PAGE = RESULTS / "base_models.md"
KS = (1, 8, 32, 256)

HEAD = """# What the base models can do

Training that makes likely what the base model could already sample *sharpens* it; training *extends* it where one
attempt of the trained team solves more tasks than all attempts of the untrained team
([how](../evaluation.md#sharpened-or-extended)). So beside a trained figure belongs the base model's pass@k: the
probability that at least one of k attempts solves a task. All at temperature 1, with the prompts and token limits of
training, on held-out tasks; 95 % bootstrap intervals over tasks. Written by `make results` from
`docs/results/evaluations/`.

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


def untrained(kept: dict[str, Any]) -> list[str]:
    points = curve(successes(kept))
    team = f"`{kept['experiment']}`" + "".join(f", `{word}`" for word in kept["overrides"])
    return [team, str(len(kept["solved"])), *(share(points, k) for k in KS), kept["commit"][:7], f"`{command(kept)}`"]


def trained(name: str, kept: dict[str, Any], base: dict[str, Any]) -> list[str]:
    if kept["tasks"] != base["tasks"]:
        raise ValueError(f"{name} and its base have different tasks")
    found = extension(successes(base), successes(kept))
    low, high = found.interval
    return [
        f"`{kept['experiment']}`",
        f"`{kept['run']}`",
        share(found.trained, 1),
        f"@{base['episodes']}: {share(found.base, base['episodes'])}",
        f"{found.difference:+.3f} ({low:+.3f} to {high:+.3f})",
        f"{found.gained} of {found.unsolved}",
        f"**{found.verdict}**",
        kept["commit"][:7],
    ]


def page(results: Path = RESULTS) -> str:
    files = sorted((results / "evaluations").glob("*.json"))
    kept = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    bases = [untrained(each) for each in kept.values() if each["base"] is None]
    teams = [trained(name, each, kept[each["base"]]) for name, each in kept.items() if each["base"]]
    text = HEAD + "\n" + markdown(["team", "tasks", *(f"pass@{k}" for k in KS), "commit", "command"], bases)
    if teams:
        heads = [
            "experiment",
            "run",
            "trained pass@1",
            "base pass@k",
            "difference, paired",
            "unsolved by the base, gained",
        ]
        text += "\n## Trained teams beside them\n\n" + markdown([*heads, "verdict", "commit"], teams)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
