"""What ``execution=ray`` costs on this machine: the same run there and locally, in pairs that take turns.

Wall and CPU seconds of an iteration after the first one; the CPU time is that of the run's process and, on Ray, of all
processes below it, Ray's own included.  docs/scaling.md has the results.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from hydra import compose

from troupe.loop import TrainLoop
from troupe.setup.assembly import build
from troupe.setup.composition import configurations

SMALL = (
    *("experiment=sokoban_specialized", "name=bench", "diagnostics=off", "strategy.accelerator=cpu", "threads=1"),
    *("loop.eval_every=1000", "loop.validation_tasks=1", "loop.test_tasks=1"),
)
RAY = ("execution=ray", "execution.resources.pool.cpus=0.5", "execution.resources.engine.cpus=0.5")


def cpu_s(below: bool) -> float:
    """CPU seconds of this process until now, and of those ``below`` it."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *(own.children(recursive=True) if below else [])]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:  # it has just ended
            continue
        total += times.user + times.system
    return total


def measure(words: tuple[str, ...], iterations: int, tasks: int) -> dict[str, float]:
    """Seconds to build the run and, of an iteration, wall (the load of weights, too) and CPU: medians."""
    on_ray, begin = "execution=ray" in words, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, configurations(None):
        sizes = (
            f"loop.iterations={iterations}",
            f"loop.tasks_per_iteration={tasks}",
            f"run_dir={Path(folder) / 'run'}",
        )
        loop = build(compose("train", overrides=[*SMALL, *words, *sizes]))
        start = time.perf_counter() - begin
        rows = list(_rows(loop, on_ray))
    later = rows[1:]
    return {"start_s": start} | {key: statistics.median(row[key] for row in later) for key in later[0]}


def _rows(loop: TrainLoop, on_ray: bool) -> Iterator[dict[str, float]]:
    rows: list[dict[str, float]] = []
    inner = loop.run_iteration

    async def run_iteration() -> dict[str, Any]:
        wall, cpu = time.perf_counter(), cpu_s(on_ray)
        row = await inner()
        times = {"wall_s": time.perf_counter() - wall, "cpu_s": cpu_s(on_ray) - cpu}
        rows.append(times | {"load_s": row["time/load_s"]})
        return row

    loop.run_iteration = run_iteration  # type: ignore[method-assign]
    try:
        asyncio.run(loop.run())
    finally:
        loop.directory.release()
        if on_ray:
            import ray

            ray.shutdown()  # or its processes would run beside the next local run
    yield from rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=8)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    ratios: dict[str, list[float]] = {}
    for pair in range(options.pairs):
        order = ("local", "ray") if pair % 2 == 0 else ("ray", "local")
        sizes = options.iterations, options.tasks
        found = {kind: measure(RAY if kind == "ray" else (), *sizes) for kind in order}
        for kind in ("local", "ray"):
            print(pair, kind, *(f"{key}={value:.3f}" for key, value in found[kind].items()), flush=True)
        for key in ("wall_s", "cpu_s"):
            ratios.setdefault(key, []).append(found["ray"][key] / found["local"][key])
    for key, values in ratios.items():
        print(f"{key}: ray / local {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
