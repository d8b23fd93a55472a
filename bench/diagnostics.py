"""What diagnostics cost: `python bench/diagnostics.py EXPERIMENT ... [--iterations N] [--overrides key=value ...]`

Trains each experiment for as many iterations as there are between two probes, or N, and adds up the CPU seconds that
pass in what diagnostics add, by part.  Shares are of the CPU seconds of the iterations without them; the process has
nothing else to do meanwhile.  (Iterations played twice, with diagnostics and without, differ by 10 % by chance, which
hides shares of 1 %.)
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import inspect
import json
import tempfile
import time
from collections import Counter
from typing import Any

from troupe import Experiment
from troupe.diagnostics.diagnostics import Diagnostics
from troupe.diagnostics.extra_episodes import ExtraEpisodes
from troupe.loop import TrainLoop
from troupe.models.learning.learner import Learner
from troupe.setup.assembly import build

PARTS = {
    "probe": (ExtraEpisodes, "end"),
    "messages": (Diagnostics, "messages"),
    "alarms": (Diagnostics, "check"),
    "gradient_shares": (Learner, "_gradient_shares"),
}
spent: Counter[str] = Counter()


def timed(part: str, function: Any) -> Any:
    """``function``, whose CPU seconds are added to ``spent``."""

    @functools.wraps(function)
    def call(*args: Any, **keys: Any) -> Any:
        start = time.process_time()
        try:
            return function(*args, **keys)
        finally:
            spent[part] += time.process_time() - start

    @functools.wraps(function)
    async def call_async(*args: Any, **keys: Any) -> Any:
        start = time.process_time()
        try:
            return await function(*args, **keys)
        finally:
            spent[part] += time.process_time() - start

    return call_async if inspect.iscoroutinefunction(function) else call


async def train(loop: TrainLoop, iterations: int) -> float:
    """CPU seconds of the iterations."""
    await loop.world.open()
    await loop.team.load_weights()
    start = time.process_time()
    for _ in range(iterations):
        await loop.run_iteration()
    seconds = time.process_time() - start
    await loop.team.close()
    await loop.world.close()
    return seconds


def measure(experiment: str, overrides: list[str], iterations: int | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        composed = Experiment.compose(experiment, [f"run_dir={folder}/run", *overrides])
        with composed._cfg() as cfg:
            loop = build(cfg)
        count = iterations or loop.diagnostics.settings.every
        spent.clear()
        seconds = asyncio.run(train(loop, count))
    rest = seconds - sum(spent.values())
    shares = {part: round(spent[part] / rest, 4) for part in PARTS}
    return {
        "experiment": experiment,
        "overrides": overrides,
        "iterations": count,
        "cpu_s_per_iteration": round(rest / count, 3),
        "shares": shares,
        "share": round(sum(spent.values()) / rest, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="+")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--overrides", nargs="*", default=[])
    options = parser.parse_args()
    for part, (owner, name) in PARTS.items():
        setattr(owner, name, timed(part, getattr(owner, name)))
    for experiment in options.experiments:
        print(json.dumps(measure(experiment, options.overrides, options.iterations)), flush=True)


if __name__ == "__main__":
    main()
