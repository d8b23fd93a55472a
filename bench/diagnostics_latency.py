"""What diagnostics cost where waiting costs: `python bench/diagnostics_latency.py [--iterations 10]`

Sokoban with agents that need 20 ms for a token, whatever their number, and a world that needs 0.2 s for each step; the
learner is real.  One process plays as many iterations without diagnostics, with them beside the rollout, and with them
after it (the order of lockstep), and prints the seconds of an iteration, the part of them in which it waits for
diagnostics alone, and the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from statistics import fmean, median

from troupe import Experiment
from troupe.envs.base import StepResult
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Completion, Request
from troupe.loop import TrainLoop
from troupe.rollout.scripted import ScriptedEngine
from troupe.setup.assembly import build

TOKEN_S, STEP_S = 0.02, 0.2
SKIPPED = 3
"""First iterations that are not measured, so that what the last trees leave to do is."""
OVERRIDES = ["loop.lockstep=false", "env.horizon=2", "loop.tasks_per_iteration=4", "algorithm.sampler.k=4"]


class SlowEngine(ScriptedEngine):
    """Needs :data:`TOKEN_S` for each token of a request's longest completion."""

    async def generate(self, request: Request) -> list[Completion]:
        completions = await super().generate(request)
        await asyncio.sleep(TOKEN_S * max(len(each.token_ids) for each in completions))
        return completions


class SlowSokoban(Sokoban):
    """Needs :data:`STEP_S` for each step."""

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        await asyncio.sleep(STEP_S)
        return await super().step(actions)


def moves(prompt: str, row: int, seed: int) -> str:
    random = Random(f"{seed}/{row}")
    return " ".join(random.choice("UDLR") for _ in range(random.randint(8, 16)))


def slow(loop: TrainLoop) -> TrainLoop:
    loop.world = SlowSokoban(horizon=2)
    engines = {each.policy: SlowEngine(moves, each.tokenizer) for each in loop.team.training.values()}
    loop.team.training = {
        agent: replace(client, engine=engines[client.policy]) for agent, client in loop.team.training.items()
    }
    return loop


async def played(loop: TrainLoop, iterations: int) -> tuple[list[float], dict[str, float]]:
    """The seconds of each of ``iterations``, and those in which they wait for diagnostics, by metric."""
    seconds, waits = [], dict.fromkeys(("time/probe_s", "time/trees_s"), 0.0)
    for index in range(SKIPPED + iterations):
        start = time.perf_counter()
        row = await loop.run_iteration()
        if index >= SKIPPED:
            seconds.append(time.perf_counter() - start)
            waits = {key: value + row.get(key, 0.0) for key, value in waits.items()}
    await loop.trees.written()
    await loop.team.close()
    return seconds, waits


def measure(name: str, iterations: int, *overrides: str, beside: bool = True) -> float:
    with tempfile.TemporaryDirectory() as folder:
        words = [f"run_dir={folder}/run", f"loop.iterations={SKIPPED + iterations + 1}", *OVERRIDES, *overrides]
        with Experiment.compose("sokoban_specialized", words)._cfg() as cfg:
            loop = slow(build(cfg))
        loop.diagnostics.extra.beside = loop.trees.beside = beside
        seconds, waits = asyncio.run(played(loop, iterations))
        loop.directory.release()
    line = {"diagnostics": name, "iteration_s": round(fmean(seconds), 2), "median_s": round(median(seconds), 2)}
    line |= {f"share of {key}": round(value / sum(seconds), 4) for key, value in waits.items()}
    print(json.dumps(line), flush=True)
    return fmean(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=10)
    count = parser.parse_args().iterations
    without = measure("off", count, "diagnostics=off")
    beside, after = measure("beside", count), measure("after", count, beside=False)
    print(json.dumps({"beside / off": round(beside / without, 3), "after / off": round(after / without, 3)}))


if __name__ == "__main__":
    main()
