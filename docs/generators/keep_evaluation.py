"""Keep an evaluation for the documentation: `python docs/generators/keep_evaluation.py NAME FOLDER[@CONDITION] [BASE]`.

Writes `docs/results/evaluations/NAME.json`: of each task how many of its episodes were solved, and what was played by
which commit.  BASE is the NAME of the kept evaluation of the base model that a trained team is compared with.  ``make
results`` then writes the page.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from troupe.evaluation.records import CONFIG, VERSIONS, locate
from troupe.runs.files import read_object

EVALUATIONS = Path(__file__).parent.parent / "results" / "evaluations"
OTHER_TEAMS = ("swap", "agents", "silence", "echo", "benchmark")
"""Keys of an evaluation that change who speaks, or what is played."""


def kept(place: str, base: str | None) -> dict[str, Any]:
    """What is committed of the evaluation FOLDER[@CONDITION]."""
    record, condition = locate(place)
    condition = record.condition(condition)
    successes = record.successes(condition)
    most = max(map(len, successes.values()))
    config: Any = OmegaConf.to_container(OmegaConf.load(record.path / CONFIG))
    if condition != "temperature=1" or (changed := [key for key in OTHER_TEAMS if config[key]]):
        raise ValueError(f"{place}: the page has teams as they are, at temperature=1, not {changed or condition}")
    run = config["run"] and Path(config["run"])
    return {
        "experiment": config["exp"] or run.parent.name,
        "overrides": config["overrides"],
        "run": run and run.name,
        "checkpoint": config["request"]["checkpoint"],
        "base": base,
        "commit": read_object(record.path, VERSIONS)[0].get("commit", ""),
        "seconds": round(record.seconds[condition]),
        "tasks": hashlib.sha256(json.dumps(sorted(successes)).encode()).hexdigest()[:16],
        "episodes": most,
        "solved": [sum(wins) for _, wins in sorted(successes.items())],
        "lost": sum(most - len(wins) for wins in successes.values()),
    }


if __name__ == "__main__":
    name, place, *base = sys.argv[1:]
    EVALUATIONS.mkdir(exist_ok=True)
    file = EVALUATIONS / f"{name}.json"
    file.write_text(json.dumps(kept(place, *base or [None])) + "\n", encoding="utf-8")
    print(file)
