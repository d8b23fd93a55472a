"""What ``loop.staleness=1`` gives, against 0, in one process.

``waits``     episodes per second in a world that waits: each step of Sokoban takes, besides its own time, a time drawn
              from a Pareto distribution (shape 1.5, 0.5 s at the least, 10 s at the most), as a tool or a server would;
              the draw is seeded by the task, the turn and what was said
``computes``  the same without waiting
``success``   on held-out boards after a short training, with the same settings but ``loop.staleness``, by seed

``waits`` and ``computes`` train from the start to the end, nothing left under way, without evaluations; the runs with 0
and with 1 take turns, and the ratio is that of each pair.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import torch
from hydra import compose

from troupe.envs.base import StepResult
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Task
from troupe.loop import TrainLoop
from troupe.setup.build import build
from troupe.setup.composition import configurations

SHAPE, LEAST_S, MOST_S = 1.5, 0.5, 10.0
COMMON = ["experiment=sokoban_specialized", "loop.lockstep=false", "algorithm.objective.importance_cap=2"]
COMMON += ["diagnostics=off", "name=bench"]
SPEED = ["algorithm=mas_grpo", "algorithm.objective.importance_cap=2", "algorithm.sampler.k=4", "env.horizon=2"]
LEARNING = ["loop.iterations=6", "loop.tasks_per_iteration=24", "loop.eval_every=100", "loop.validation_tasks=2"]
LEARNING += ["loop.test_tasks=150"]


class Waiting(Sokoban):
    """Sokoban whose steps wait."""

    def reset(self, task: Task) -> None:
        self.task_id = task.task_id
        super().reset(task)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        said = json.dumps([self.task_id, self.turn, sorted(actions.items())])
        await asyncio.sleep(min(LEAST_S * Random(said).paretovariate(SHAPE), MOST_S))
        return await super().step(actions)


def loop(staleness: int, *words: str) -> TrainLoop:
    """A run that has not begun."""
    words = (*COMMON, f"loop.staleness={staleness}", f"run_dir={Path(mkdtemp(prefix='troupe-bench-')) / 'run'}", *words)
    with configurations(None):
        return build(compose("train", overrides=list(words)))


async def episodes_per_second(staleness: int, waits: bool, iterations: int, tasks: int, seed: int) -> float:
    """Of a whole training, evaluations and the start left out."""
    run = loop(staleness, *SPEED, f"loop.iterations={iterations}", f"loop.tasks_per_iteration={tasks}", f"seed={seed}")
    run.display.console.quiet = True
    if waits:
        run.world = Waiting(horizon=2)
    episodes = 0
    await run._load_weights()
    start = time.perf_counter()
    while not run.over():
        row = await run.run_iteration()
        episodes += int(row["rollout/tasks"]) * run.episodes_per_task
        run.progress.row = {}
    seconds = time.perf_counter() - start
    assert episodes == iterations * tasks * run.episodes_per_task
    await run.team.close()
    run.directory.release()
    return episodes / seconds


def speeds(waits: bool, pairs: int, iterations: int, tasks: int) -> dict[str, Any]:
    """Episodes per second of each run, and the ratios."""
    found: dict[int, list[float]] = {0: [], 1: []}
    for pair in range(pairs + 1):
        for staleness in (0, 1) if pair % 2 else (1, 0):
            size = iterations if pair else 2
            speed = asyncio.run(episodes_per_second(staleness, waits, size, tasks, seed=pair))
            if pair:  # the first warms up
                found[staleness].append(speed)
                print(f"  staleness {staleness}: {speed:.2f} episodes/s", flush=True)
    ratios = [one / zero for zero, one in zip(found[0], found[1], strict=True)]
    print(f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    return {"episodes_per_s": {str(key): value for key, value in found.items()}, "ratios": ratios}


def success(seeds: int) -> dict[str, Any]:
    """By staleness, success and its interval of each seed."""
    found: dict[str, list[Any]] = {"0": [], "1": []}
    for seed in range(seeds):
        for staleness in found:
            summary = asyncio.run(loop(int(staleness), *LEARNING, f"seed={seed}").run())
            values = [summary["eval_before/success"], summary["eval/success"], *summary["eval/success_ci95"]]
            cpu, wall = summary["time/cpu_s"], summary["time/wall_s"]
            found[staleness].append(values)
            text = f"staleness {staleness}, seed {seed}: {values[0]:.3f} to {values[1]:.3f} ({values[2]:.3f} to "
            print(f"{text}{values[3]:.3f}), {cpu:.0f} CPU seconds, {wall:.0f} s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=("waits", "computes", "success"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for part in options.parts:
        print(part, flush=True)
        if part == "success":
            results[part] = success(options.seeds)
        else:
            results[part] = speeds(part == "waits", options.pairs, options.iterations, options.tasks)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
