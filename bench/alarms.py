"""Do healthy runs raise alarms?  `python bench/alarms.py play FOLDER --seeds 0 1 2`, then `... show FOLDER > FILE`

`play` trains shipped experiments at laptop scale, one after another, in FOLDER/EXPERIMENT-SEED (those that have ended
are left out), shortened: fewer tasks per iteration, fewer iterations, more probes.  Fewer tasks mean noisier metrics,
so that an alarm is more likely than in a whole run.  `show` says of every threshold of `diagnostics.alarms` which value
came nearest to it, by experiment and over the seeds of each half, and which alarms the present thresholds raise: from
`metrics.jsonl` alone, so that thresholds can be tried on runs that have ended.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from troupe.diagnostics.alarms import RULES, State, alarms, check
from troupe.diagnostics.settings import AlarmSettings
from troupe.runs.run import RunReader

REGIMES = ("specialized", "shared", "lora", "single")
WORLDS = ("code", "math", "plan_path", "sokoban", "sudoku")
EXPERIMENTS = [f"{world}_{regime}" for world in WORLDS for regime in REGIMES]
"""By default those of the worlds with all regimes."""
SHORTER = (
    *("loop.iterations=12", "loop.tasks_per_iteration=16", "loop.completions=0", "loop.eval_every=6"),
    *("loop.validation_tasks=10", "loop.test_tasks=1", "loop.checkpoint.every=1000", "diagnostics.every=3"),
    "diagnostics.probe_tasks=4",
)
WHOLE = {"signalling": ["loop.tasks_per_iteration=64"]}
"""Worlds that need their own number of tasks: with 16, Signalling can unlearn its notation in one step."""
FIXED, TESTED = range(3), range(3, 6)
"""The seeds that thresholds were chosen on, and those that they were tested on."""


def play(folder: Path, experiments: list[str], seeds: list[int], more: list[str]) -> None:
    from troupe import Experiment  # whose import takes seconds

    for seed in seeds:
        for experiment in experiments:
            path = folder / f"{experiment}-{seed}"
            if (path / "summary.json").is_file() and RunReader(path).status == "finished":
                continue
            whole = WHOLE.get(experiment.rpartition("_")[0], [])
            Experiment.compose(experiment, [*SHORTER, *whole, f"seed={seed}", f"run_dir={path}", *more]).train()


def extremes(run: RunReader, settings: AlarmSettings) -> Iterator[tuple[str, float]]:
    """(Threshold, the value of a window that came nearest to it): the largest, or the smallest."""
    for rule in RULES:
        always = float("inf") if rule.beyond == "below" else 1e-300  # every full window raises it
        state: State = {}
        values = []
        for row in run.rows:
            check(row, replace(settings, **{rule.threshold: always}), state)
            values += [
                entry["value"]
                for key, entry in state.items()
                if key.startswith(f"{rule.threshold}/") and entry["since"] is not None and entry["until"] is None
            ]
        if values:
            yield rule.threshold, min(values) if rule.beyond == "below" else max(values)


def show(folders: list[Path]) -> dict[str, Any]:
    settings = AlarmSettings()
    paths = [path for folder in folders for path in sorted(folder.glob("*-*")) if (path / "summary.json").is_file()]
    runs = {path.name: RunReader(path) for path in paths}
    nearest: dict[str, dict[str, dict[str, float]]] = {}
    raised: dict[str, list[str]] = {}
    for name, run in runs.items():
        experiment, _, seed = name.rpartition("-")
        half = "fixed on" if int(seed) in FIXED else "tested on"
        values = nearest.setdefault(experiment, {}).setdefault(half, {})
        for rule_name, value in extremes(run, settings):
            rule = next(rule for rule in RULES if rule.threshold == rule_name)
            pick = min if rule.beyond == "below" else max
            values[rule_name] = pick(value, values.get(rule_name, value))
        state: State = {}
        for row in run.rows:
            check(row, settings, state)
        if lines := [str(alarm) for alarm in alarms(state, settings, {})]:
            raised[name] = lines
    return {
        "thresholds": {each.name: getattr(settings, each.name) for each in fields(settings)},
        "runs": {name: len(run.rows) for name, run in runs.items()},
        "nearest": nearest,
        "raised": raised,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    playing = commands.add_parser("play")
    playing.add_argument("folder", type=Path)
    playing.add_argument("--seeds", type=int, nargs="+", default=[*FIXED, *TESTED])
    playing.add_argument("--experiments", nargs="+", default=list(EXPERIMENTS))
    playing.add_argument("--overrides", nargs="*", default=[])
    showing = commands.add_parser("show")
    showing.add_argument("folders", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "play":
        play(options.folder, options.experiments, options.seeds, options.overrides)
    else:
        json.dump(show(options.folders), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
