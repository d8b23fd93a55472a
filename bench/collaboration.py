"""MAGRPO's columns for teams of code collaboration, untrained and trained: `python bench/collaboration.py RUN_DIR ...`.

Runs that differ in the seed alone are one team: its figures are means over runs, in brackets the least and the most.
Each run's last weights, and the first run's base models, play `--tasks` held-out test tasks, `--samples` times each, as
they were sampled in training.  Levels are points of the program of each turn, of at most 1, 0.5, 1 and 1.5; *return* is
their sum over 4, as the publication has it; seconds are of the wall, with all episodes at once.
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
from troupe.runs.fingerprint import training_keys
from troupe.runs.run import RunReader

LEVELS = ("structure", "syntax", "tests", "cooperation")
TIMES = {"tokens": "tokens per episode", "rate": "tokens/s", "ms": "ms per episode"}


def team_of(folder: Path) -> str:
    """Its agents, their order and their turns."""
    config = OmegaConf.load(folder / "config.yaml")
    agents = "one agent" if len(config.team) == 1 else config.env.order
    turns = "one turn" if config.env.horizon == 1 else f"{config.env.horizon} turns, {config.env.feedback}"
    return f"{agents}, {turns}"


def check_alike(team: str, runs: Sequence[RunReader]) -> None:
    """Exit where runs of ``team`` differ in more than their seeds."""
    first, *others = ({**training_keys(one.config), "seed": None} for one in runs)
    for other, keys in zip(runs[1:], others, strict=True):
        if differing := sorted(key for key in first.keys() | keys.keys() if first.get(key) != keys.get(key)):
            raise SystemExit(
                f"{team}: {other.path} and {runs[0].path} differ in {', '.join(differing)}; give one of them"
            )


def measured(folder: Path, checkpoint: str, options: argparse.Namespace) -> dict[str, float]:
    """The figures of one team."""
    pass_at = ",".join(str(k) for k in options.pass_at)
    words = [f"run={folder}", f"checkpoint={checkpoint}", f"tasks={options.tasks}", f"samples={options.samples}"]
    words += [f"pass_at=[{pass_at}]", "temperature=own", f"threads={options.threads}"]
    with initialize_config_module("troupe.configs", version_base="1.3"):
        evaluation = run(compose("eval", overrides=with_open_keys(words)), Console(file=io.StringIO()))
    (name, row), *_ = evaluation.conditions.items()
    return figures(row, evaluation.seconds[name], options.pass_at)


def figures(row: Mapping[str, Any], seconds: float, pass_at: Sequence[int]) -> dict[str, float]:
    """The columns of one condition, which took ``seconds``."""
    agent = next(name for name in ("main", "solo") if f"{name}/structure" in row)
    levels = {level: float(row[f"{agent}/{level}"]) for level in LEVELS}
    return {
        **{f"pass@{k}": float(row[f"pass@{k}"]) for k in pass_at},
        **levels,
        "return": sum(levels.values()) / 4,
        "tokens": row["tokens"] / row["episodes"],
        "rate": row["tokens"] / seconds,
        "ms": 1000 * seconds / row["episodes"],
    }


def table(teams: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Markdown, one line per team."""
    names = {key: TIMES.get(key, key) for key in next(iter(teams.values()))[0]}
    lines = [f"| team | runs | {' | '.join(names.values())} |", "| --- " * (len(names) + 2) + "|"]
    for team, runs in teams.items():
        cells = [cell([one[key] for one in runs], digits=0 if key in TIMES else 3) for key in names]
        lines.append(f"| {team} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(values: Sequence[float], digits: int) -> str:
    texts = [f"{value:.{digits}f}" for value in (fmean(values), min(values), max(values))]
    return texts[0] if texts[1] == texts[2] else f"{texts[0]} ({texts[1]} to {texts[2]})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--pass-at", type=int, nargs="+", default=[1, 3, 5, 10])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    teams: dict[str, list[Path]] = {}
    for folder in options.runs:
        teams.setdefault(team_of(folder), []).append(folder)
    for team, runs in teams.items():
        check_alike(team, [RunReader(folder) for folder in runs])
    rows = {f"{team}, untrained": [measured(runs[0], "base", options)] for team, runs in teams.items()}
    rows |= {f"{team}, trained": [measured(one, "last", options) for one in runs] for team, runs in teams.items()}
    print(table(rows))


if __name__ == "__main__":
    main()
