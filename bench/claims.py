"""What each agent of a trained team contributes: `python bench/claims.py RUN_DIR [RUN_DIR ...]`.

On each run's held-out test tasks: the base model at several temperatures, the trained team, the team with its first
agent (the tool agent, the tester) or its reasoner silenced, the tool agent's proposals executed without the planner,
and the two policies swapped; of an agent alone, the base model and the trained one.  Each is an evaluation
(`docs/evaluation.md`), kept in the run's `evaluations/`; here they make one Markdown table per run, with 95 % Wilson
intervals.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from rich.console import Console

from troupe.cli.eval import run
from troupe.cli.start import with_open_keys


def silenced(agent: str, name: str) -> dict[str, list[str]]:
    return {f"trained, {name} silenced": [f"silence=[{agent}]", "temperature=1"]}


ALONE = {"base": ["checkpoint=base", "temperature=[1,0,0.3,0.5,0.7]"], "trained": ["temperature=[1,0]"]}
ECHOED = {"trained, proposals executed without the planner": ["echo.plan=tool", "temperature=1"]}
SWAPPED = {"trained, policies swapped": ["swap=true", "temperature=1"]}
GRIDS = ALONE | silenced("tool", "tool agent") | ECHOED | SWAPPED
CODE = ALONE | silenced("tester", "tester") | SWAPPED
MATHEMATICS = ALONE | silenced("tool", "tool agent") | silenced("reasoner", "reasoner") | SWAPPED
COLUMNS = ("success", "turns")
EVALUATIONS = {
    ("plan", "tool"): (GRIDS, ("tool/reward", "tool/malformed", "tool/blocked", "plan/malformed", "plan/blocked")),
    ("coder", "tester"): (CODE, ("tester/reward", "tester/malformed", "coder/reward", "coder/malformed")),
    ("reasoner", "tool"): (
        MATHEMATICS,
        ("tool/reward", "tool/malformed", "reasoner/reward", "reasoner/malformed"),
    ),
    ("solo",): (ALONE, ("solo/reward", "solo/malformed")),
}
"""By agents: the evaluations of their team, each with its keys, and further columns of the table."""


def table(folder: Path, tasks: int, checkpoint: str, threads: int) -> str:
    """Markdown.  Raises ``KeyError`` for agents that :data:`EVALUATIONS` does not have."""
    evaluations, more = EVALUATIONS[tuple(sorted(OmegaConf.load(folder / "config.yaml").team))]
    columns = (*COLUMNS, *more)
    lines = ["| condition | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, keys in evaluations.items():
        words = [f"run={folder}", f"checkpoint={checkpoint}", f"tasks={tasks}", f"threads={threads}", *keys]
        evaluation = run(compose("eval", overrides=with_open_keys(words)), Console(file=io.StringIO()))
        for condition, row in evaluation.conditions.items():
            low, high = row["success_ci95"]
            cells = [f"{row['success']:.3f} ({low:.3f}-{high:.3f})"]
            cells += [f"{row[column]:.3f}" if column in row else "" for column in columns[1:]]
            lines.append(f"| {name}, {condition} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--checkpoint", default="last")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with initialize_config_module("troupe.configs", version_base="1.3"):
        for folder in options.runs:
            markdown = table(folder, options.tasks, options.checkpoint, options.threads)
            print(f"\n{folder} ({options.tasks} test tasks)\n\n{markdown}", flush=True)


if __name__ == "__main__":
    main()
