"""What each agent of a trained team contributes: `python bench/claims.py RUN_DIR [RUN_DIR ...]`.

On each run's held-out test tasks: the base model at several temperatures, the trained team, the team with each of its
agents silenced, the two policies of a pair swapped, and in Plan-Path the tool agent's proposals executed without the
planner; of an agent alone, the base model and the trained one.  Each is an evaluation (`docs/evaluation.md`), kept in
the run's `evaluations/`; here they make a Markdown table per run, with 95 % Wilson intervals.  `--only TEXT` leaves out
the conditions whose name does not contain it; `--mean` makes one table of all runs instead, each cell the mean over the
runs and in brackets the least and the most of them.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from rich.console import Console

from troupe.cli.eval import run
from troupe.cli.start import with_open_keys

ALONE = {"base": ["checkpoint=base", "temperature=[1,0,0.3,0.5,0.7]"], "trained": ["temperature=[1,0]"]}
ECHOED = {"trained, proposals executed without the planner": ["echo.plan=tool", "temperature=1"]}
"""Where proposals are moves: Sokoban's are pushes, which are none."""
SWAPPED = {"trained, policies swapped": ["swap=true", "temperature=1"]}


def conditions_of(world: str, agents: Sequence[str]) -> dict[str, list[str]]:
    """The keys of each evaluation of a team in the ``world`` of that class, by its name."""
    if len(agents) == 1:
        return ALONE
    silenced = {f"trained, {agent} silenced": [f"silence=[{agent}]", "temperature=1"] for agent in agents}
    return ALONE | silenced | (ECHOED if world.endswith(".PlanPath") else {}) | (SWAPPED if len(agents) == 2 else {})


def evaluate(folder: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Of each condition its numbers."""
    rows, config = {}, OmegaConf.load(folder / "config.yaml")
    for name, keys in conditions_of(config.env._target_, sorted(config.team)).items():
        if options.only not in name:
            continue
        words = [f"run={folder}", f"checkpoint={options.checkpoint}", f"tasks={options.tasks}"]
        words = with_open_keys([*words, f"threads={options.threads}", *keys])
        evaluation = run(compose("eval", overrides=words), Console(file=io.StringIO()))
        rows |= {f"{name}, {condition}": row for condition, row in evaluation.conditions.items()}
    return rows


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown of one run."""
    columns = sorted(
        {key for row in rows.values() for key in row if key.endswith(("/reward", "/malformed", "/blocked"))}
    )
    lines = ["| condition | " + " | ".join(["success", "turns", *columns]) + " |", "|---" * (len(columns) + 3) + "|"]
    for condition, row in rows.items():
        low, high = row["success_ci95"]
        cells = [f"{row['success']:.3f} ({low:.3f}-{high:.3f})"]
        cells += [f"{row[column]:.3f}" if column in row else "" for column in ("turns", *columns)]
        lines.append(f"| {condition} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def mean_table(runs: Sequence[Mapping[str, Mapping[str, Any]]]) -> str:
    """Markdown of the mean over ``runs``; an agent that was never called has no reward."""
    rewards = {key: None for rows in runs for row in rows.values() for key in row if key.endswith("/reward")}
    columns = ["success", *rewards]
    lines = ["| condition | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for condition in runs[0]:
        found = [[run[condition][column] for run in runs if column in run[condition]] for column in columns]
        cells = [f"{fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})" if values else "" for values in found]
        lines.append(f"| {condition} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--checkpoint", default="last")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="a part of the names of the conditions")
    parser.add_argument("--mean", action="store_true", help="one table of the mean over the runs")
    options = parser.parse_args()
    with initialize_config_module("troupe.configs", version_base="1.3"):
        runs = {folder: evaluate(folder, options) for folder in options.runs}
    if options.mean:
        print(f"{len(runs)} runs ({options.tasks} test tasks each)\n\n{mean_table([*runs.values()])}")
        return
    for folder, rows in runs.items():
        print(f"\n{folder} ({options.tasks} test tasks)\n\n{table(rows)}")


if __name__ == "__main__":
    main()
