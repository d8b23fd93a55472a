"""Where the time of an iteration goes, how it grows, two pools against one, and what a message is paid.

``phases``  the shares of ten iterations of ``sokoban_specialized`` that ``time/...`` explains, and what else takes time
``growth``  the exponent of rollout and update time in K, turns, agents, prompt length and vocabulary: the slope of a
            line through (log size, log seconds), by least squares, of each repetition
``pools``   seconds of two specialised pools over those of one shared pool, at equal samples
``paid``    completions, and seconds of rollout and update, of an iteration of ``sokoban_specialized`` with each
            ``algorithm.reward.team``; the learning rate is 0, so that all play alike

Growth and pools are measured in the world of :mod:`lines`, where messages have one length.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any, get_args

import torch
from hydra import compose
from lines import Runs, Setting

from troupe.loop import TrainLoop
from troupe.rollout.samplers.task_rollout import TeamReward
from troupe.runs import metrics as metrics_module
from troupe.setup.assembly import build
from troupe.setup.composition import configurations

Clock = Callable[[], float]
SMALL = Setting(tasks=2)
SIZES: dict[str, tuple[int, ...]] = {
    "k": (4, 8, 16, 32),
    "turns": (1, 2, 4, 8),
    "agents": (1, 2, 4, 8),
    "prompt": (256, 512, 1024, 2048),
    "vocabulary": (1024, 4096, 16384),
}
"""Sizes that grow, all else as in :data:`SMALL`."""
PERIOD = 10
"""Iterations with one probe, one validation and one checkpoint, as the defaults have them."""
PHASES = ("rollout", "probe", "update", "trees", "load", "validation")
"""Of ``time/PHASE_s``."""
PAID = ("rollout/completions", "time/rollout_s", "time/update_s")
SHARES = {phase: f"`time/{phase}_s`" for phase in PHASES} | {
    "checkpoint": "checkpoints, which no metric has",
    "explained": "all of these",
}


@cache
def growth(size: str, repetitions: int, clock: Clock) -> dict[str, list[float]]:
    """By phase, the exponent in ``size`` in each repetition."""
    settings = {str(value): replace(SMALL, **{size: value}) for value in SIZES[size]}
    runs = Runs(settings, clock)
    slopes: dict[str, list[float]] = {"rollout": [], "update": []}
    for repetition in range(repetitions + 1):
        rows = {value: runs.iterate(value) for value in settings}
        for phase, found in slopes.items():
            seconds = [rows[value][f"time/{phase}_s"] for value in settings]
            if repetition:  # the first warms up
                found.append(slope([*map(float, SIZES[size])], seconds))
            print(f"  {size} {', '.join(settings)}: {phase} {', '.join(f'{s:.3f}' for s in seconds)} s", flush=True)
    runs.close()
    return slopes


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Of the line through (log size, log seconds)."""
    return statistics.linear_regression([*map(math.log, sizes)], [*map(math.log, seconds)]).slope


def pools(repetitions: int, clock: Clock) -> list[float]:
    """Seconds of an iteration with two specialised pools over those with one shared, of each pair."""
    runs = Runs({regime: Setting(regime=regime) for regime in ("specialized", "shared")}, clock)
    ratios = []
    for pair in range(repetitions + 1):
        order = ("specialized", "shared")[:: 1 if pair % 2 else -1]
        seconds = {regime: runs.iterate(regime)["time/iteration_s"] for regime in order}
        if pair:
            ratios.append(seconds["specialized"] / seconds["shared"])
        print(f"  specialized {seconds['specialized']:.3f} s, shared {seconds['shared']:.3f} s", flush=True)
    runs.close()
    return ratios


def paid(repetitions: int, clock: Clock) -> dict[TeamReward, dict[str, list[float]]]:
    """By ``algorithm.reward.team``, its metrics of :data:`PAID` in each repetition."""
    metrics_module.time = SimpleNamespace(perf_counter=clock)
    words = ["experiment=sokoban_specialized", "scale.lr=0", "name=bench"]
    loops: dict[TeamReward, TrainLoop] = {}
    with configurations():
        for team in get_args(TeamReward):
            own = [f"algorithm.reward.team={team}", f"run_dir={Path(mkdtemp()) / 'run'}"]
            loops[team] = build(compose("train", overrides=[*words, *own]))
    found: dict[TeamReward, dict[str, list[float]]] = {team: {key: [] for key in PAID} for team in loops}

    async def play() -> None:
        for repetition in range(repetitions + 1):
            for team, loop in [*loops.items()][:: 1 if repetition % 2 else -1]:
                row = await loop.run_iteration()
                loop.progress.row = {}
                for key, values in found[team].items():
                    values += [row[key]] if repetition else []  # the first warms up
        for loop in loops.values():
            await loop.team.close()
            loop.directory.release()

    asyncio.run(play())
    return found


@cache
def phases(periods: int, clock: Clock) -> dict[str, list[float]]:
    """By phase, its share of each of ``periods`` of a run with the default settings; the first iteration is left out,
    and the last one, which validates because it is the last.
    """
    metrics_module.time = SimpleNamespace(perf_counter=clock)
    words = ["experiment=sokoban_specialized", f"loop.iterations={periods * PERIOD + 2}", "loop.test_tasks=4"]
    words += ["name=bench", f"run_dir={Path(mkdtemp()) / 'run'}"]
    with configurations():
        loop = build(compose("train", overrides=words))
    ends, checkpoints = noted(loop, clock)
    asyncio.run(loop.run())
    rows = [json.loads(line) for line in (loop.directory.path / "metrics.jsonl").read_text().splitlines()]
    return shares(rows[:-1], ends[:-1], checkpoints[:-1])


def shares(
    rows: Sequence[Mapping[str, float]], ends: Sequence[float], checkpoints: Sequence[float]
) -> dict[str, list[float]]:
    """By phase, its share of each :data:`PERIOD` after the first of ``rows`` of metrics.

    An iteration lasts from the row of the one before to its own, with the display and the checkpoint in between.
    ``ends`` are the times of the rows, ``checkpoints`` the seconds of the one after each.
    """
    spent = {phase: [row.get(f"time/{phase}_s", 0.0) for row in rows[1:]] for phase in PHASES}
    spent["checkpoint"] = list(checkpoints[:-1])
    spent["explained"] = [sum(seconds) for seconds in zip(*spent.values(), strict=True)]
    starts = range(0, len(rows) - 1, PERIOD)
    return {
        phase: [sum(seconds[at : at + PERIOD]) / (ends[at + PERIOD] - ends[at]) for at in starts]
        for phase, seconds in spent.items()
    }


def noted(loop: TrainLoop, clock: Clock) -> tuple[list[float], list[float]]:
    """When each iteration of ``loop`` has its row of metrics, and the seconds of the checkpoint after it, of the next
    iteration's time; filled as it runs.
    """
    ends: list[float] = []
    checkpoints: list[float] = []
    write, checkpoint = loop.directory.metrics, loop._checkpoint

    def written(row: Any) -> None:
        write(row)
        ends.append(clock())
        checkpoints.append(0.0)

    def saved() -> None:
        started = clock()
        checkpoint()
        if checkpoints:
            checkpoints[-1] += clock() - started

    loop.directory.metrics, loop._checkpoint = written, saved  # type: ignore[method-assign]
    return ends, checkpoints


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("phases", "growth", "pools", "paid"))
    parser.add_argument("--size", choices=list(SIZES), action="append")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: on a machine shared with others")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[arguments.clock]
    if arguments.what == "pools":
        print(f"two pools over one shared: {statistics.median(pools(arguments.repetitions, clock)):.2f}")
    elif arguments.what == "paid":
        for team, metrics in paid(arguments.repetitions, clock).items():
            print(f"{team:8} {', '.join(f'{key} {statistics.median(values):.2f}' for key, values in metrics.items())}")
    elif arguments.what == "phases":
        for name, found in phases(arguments.repetitions, clock).items():
            print(f"{name:12} {statistics.median(found):.3f} ({min(found):.3f} to {max(found):.3f})")
    else:
        for size in arguments.size or SIZES:
            for phase, slopes in growth(size, arguments.repetitions, clock).items():
                print(f"{phase} in {size}: exponent {statistics.median(slopes):.2f}")


if __name__ == "__main__":
    main()
