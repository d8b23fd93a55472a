"""What ``loop.staleness=1`` gives, against 0, and ``loop.in_flight=true`` with it, in one process.

``waits``     episodes per second in a world that waits: each step of Sokoban takes, besides its own time, a time drawn
              from a Pareto distribution (shape 1.5, 0.5 s at the least, 10 s at the most), as a tool or a server would;
              the draw is seeded by the task, the turn and what was said
``computes``  the same without waiting
``loads``     seconds that a load of new weights takes, the engines' waiting included, where completions are under way,
              with staleness 1 and long completions: nothing but the limit of tokens ends one
``success``   on held-out boards after a short training, with the same settings but ``loop.staleness``, by seed

``waits`` and ``computes`` train from the start to the end, nothing left under way, without evaluations; the runs with 0
and with 1 take turns, and the ratio is that of each pair.  So do those of ``loads``, with weights in flight and not.
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
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.setup.assembly import build
from troupe.setup.composition import configurations

SHAPE, LEAST_S, MOST_S = 1.5, 0.5, 10.0
COMMON = ["experiment=sokoban_specialized", "loop.lockstep=false", "algorithm.objective.importance_cap=2"]
COMMON += ["diagnostics=off", "name=bench"]
SPEED = ["algorithm=mas_grpo", "algorithm.objective.importance_cap=2", "algorithm.sampler.k=4", "env.horizon=2"]
LONG = [*SPEED, *(f"policies.{name}.sampling.train.max_tokens=300" for name in ("tool", "plan"))]
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


def sized(iterations: int, tasks: int, seed: int) -> list[str]:
    return [f"loop.iterations={iterations}", f"loop.tasks_per_iteration={tasks}", f"seed={seed}"]


async def trained(run: TrainLoop) -> tuple[list[dict[str, Any]], float]:
    """The metrics of a whole training, evaluations and the start left out, and episodes per second."""
    run.display.console.quiet = True
    rows: list[dict[str, Any]] = []
    await run._load_weights()
    start = time.perf_counter()
    while not run.over():
        rows.append(await run.run_iteration())
        run.progress.row = {}
    seconds = time.perf_counter() - start
    episodes = sum(int(row["rollout/tasks"]) for row in rows) * run.episodes_per_task
    assert episodes == len(rows) * run.settings.tasks_per_iteration * run.episodes_per_task
    await run.team.close()
    run.directory.release()
    return rows, episodes / seconds


async def episodes_per_second(staleness: int, waits: bool, iterations: int, tasks: int, seed: int) -> float:
    run = loop(staleness, *SPEED, *sized(iterations, tasks, seed))
    if waits:
        run.world = Waiting(horizon=2)
    return (await trained(run))[1]


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


async def load_seconds(in_flight: bool, iterations: int, tasks: int, seed: int) -> tuple[list[float], float, float]:
    """Of each load while tasks are under way; episodes per second; the share of samples that are of two versions."""
    run = loop(1, *LONG, f"loop.in_flight={in_flight}", *sized(iterations, tasks, seed))
    for engine in run.team.distinct_engines():
        assert isinstance(engine, TorchEngine)
        for decoder in engine._decoders.values():
            decoder.eos = frozenset()
    rows, speed = await trained(run)
    counts = {
        name: sum(row.get(f"train/{policy}/{name}", 0) for row in rows for policy in run.team.policies)
        for name in ("samples", "mixed_version_samples")
    }
    seconds = [row["time/load_s"] for row in rows if row["rollout/tasks_ahead"]]
    return seconds, speed, counts["mixed_version_samples"] / counts["samples"]


def loads(pairs: int, iterations: int, tasks: int) -> dict[str, Any]:
    """Seconds of each load, and the ratios of the medians and of the episodes per second."""
    found: dict[bool, list[list[float]]] = {False: [], True: []}
    speeds: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(pairs):
        for in_flight in (False, True) if pair % 2 else (True, False):
            seconds, speed, mixed = asyncio.run(load_seconds(in_flight, iterations, tasks, seed=pair))
            found[in_flight].append(seconds)
            speeds[in_flight].append(speed)
            text = f"{statistics.median(seconds):.4f} s a load ({min(seconds):.4f} to {max(seconds):.4f})"
            print(f"  in flight {in_flight}: {text}, {speed:.2f} episodes/s, {mixed:.0%} of two versions", flush=True)
    waits = [statistics.median(a) / statistics.median(b) for a, b in zip(found[False], found[True], strict=True)]
    gains = [b / a for a, b in zip(speeds[False], speeds[True], strict=True)]
    for name, ratios in (("seconds a load", waits), ("episodes per second", gains)):
        print(f"{name}: ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    return {"load_s": {str(key): value for key, value in found.items()}, "ratios": waits, "speed_ratios": gains}


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
    parser.add_argument("parts", nargs="+", choices=("waits", "computes", "loads", "success"))
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
        elif part == "loads":
            results[part] = loads(options.pairs, options.iterations, options.tasks)
        else:
            results[part] = speeds(part == "waits", options.pairs, options.iterations, options.tasks)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
