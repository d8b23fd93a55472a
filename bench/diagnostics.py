"""What diagnostics cost: `python bench/diagnostics.py EXPERIMENT [key=value ...]`

One run of a few iterations, each of which is played and learnt twice from the same state, with `diagnostics=default`
and with `diagnostics=off`, in turns which comes first.  So both have the same tasks, messages and weights, and a
machine that is busy or warms up slows both.  Seconds are CPU seconds of the process.

The first iteration has the probe, which costs most there, where episodes are long; the share is that of a run in which
every `diagnostics.every`-th iteration costs as much as the first, and the others as much as those after it.  That the
weights are the same is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import statistics
import tempfile
import time
from dataclasses import replace
from typing import Any

import torch

from troupe import Experiment
from troupe.loop import TrainLoop
from troupe.runs.progress import Progress
from troupe.setup.build import build


def snapshot(loop: TrainLoop) -> dict[str, Any]:
    policies = {name: policy.state_dict() for name, policy in loop.team.policies.items()}
    return copy.deepcopy(
        {"policies": policies, "progress": loop.progress.state_dict(), "credit": loop.credit.state_dict()}
    )


async def restore(loop: TrainLoop, state: dict[str, Any]) -> None:
    for name, policy in loop.team.policies.items():
        policy.load_state_dict(copy.deepcopy(state["policies"][name]))
    loop.progress = Progress.of(copy.deepcopy(state["progress"]))
    loop.credit.load_state_dict(copy.deepcopy(state["credit"]))
    await loop.team.load_weights()


async def measure(loop: TrainLoop, iterations: int) -> list[dict[str, float]]:
    """CPU seconds of each iteration, with diagnostics (``on``) and without (``off``)."""
    settings = loop.diagnostics.settings
    await loop.world.open()
    await loop.team.load_weights()
    pairs = []
    for iteration in range(iterations):
        start, seconds, weights = snapshot(loop), {}, []
        for enabled in (True, False) if iteration % 2 else (False, True):
            await restore(loop, start)
            loop.diagnostics.settings = replace(settings, enabled=enabled)
            before = time.process_time()
            await loop.run_iteration()
            seconds["on" if enabled else "off"] = time.process_time() - before
            weights.append(
                [p.clone() for policy in loop.team.policies.values() for p in policy.pool.module.parameters()]
            )
        assert all(torch.equal(*pair) for pair in zip(*weights, strict=True)), "diagnostics changed the weights"
        loop.progress.row = {}
        pairs.append(seconds)
    await loop.team.close()
    await loop.world.close()
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--iterations", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment.compose(options.experiment, [f"run_dir={folder}/run", *options.overrides])
        with experiment._cfg() as cfg:
            loop = build(cfg)
        pairs = asyncio.run(measure(loop, options.iterations))
        others = loop.diagnostics.settings.every - 1
    on, off = (pairs[0][name] + others * statistics.fmean(pair[name] for pair in pairs[1:]) for name in ("on", "off"))
    result = {
        "experiment": options.experiment,
        "overrides": options.overrides,
        "cpu_s": [{name: round(value, 3) for name, value in pair.items()} for pair in pairs],
        "share": round(on / off - 1, 4),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
