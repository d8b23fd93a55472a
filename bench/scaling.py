"""What more GPUs and staleness give, by :mod:`simulate`: a table for the papers' settings, and a check on this machine.

``table``    the papers' settings on 2 to 512 GPUs, from data sheets and assumptions (:data:`H100`, :class:`Model`)
``waits``    predicts what ``bench/staleness.py waits`` measures
``check``    measures iterations here with one process, fits costs to their phases, predicts runs that had no part in
             the fit (another number of tasks, two processes), and measures those
``measure``  one line of JSON: the median phases of a run; what ``check`` starts

The results are in docs/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from simulate import Cost, Pool, Speaker, Training, Work

# ---- assumptions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gpu:
    """Peaks of a data sheet, per second, and which part of them is reached (an assumption)."""

    memory_bytes: float
    flops: float
    node_bytes: float
    """To a GPU of the same node, in one direction."""
    link_bytes: float
    """To a GPU of another node, in one direction."""
    node: int = 8
    """GPUs of a node."""
    memory_share: float = 0.7
    decode_share: float = 0.3
    prefill_share: float = 0.5
    train_share: float = 0.35
    step_s: float = 0.004
    """Of a decoding step beside the model's arithmetic: scheduling, sampling, launches."""
    rows: int = 256

    def link(self, gpus: int) -> float:
        """Bytes per second between ``gpus``, which fill one node after the other."""
        return self.node_bytes if gpus <= self.node else self.link_bytes


H100 = Gpu(memory_bytes=3.35e12, flops=989e12, node_bytes=450e9, link_bytes=50e9)
"""SXM, bfloat16 without sparsity; NVLink's 900 GB/s of both directions; an assumed 400 Gbit/s to other nodes for each
GPU."""


@dataclass(frozen=True)
class Model:
    """Parameters, and bytes of keys and values per token, in bfloat16."""

    parameters: float
    cache_bytes: float

    def cost(self, gpu: Gpu, tokens: float) -> Cost:
        """Of an engine whose completions have ``tokens`` before them at the mean."""
        read = gpu.memory_bytes * gpu.memory_share
        row_s = self.cache_bytes * tokens / read + 2 * self.parameters / (gpu.flops * gpu.decode_share)
        prefill_s = 2 * self.parameters / (gpu.flops * gpu.prefill_share)
        return Cost(2 * self.parameters / read + gpu.step_s, row_s, prefill_s, gpu.rows)

    def load_s(self, gpu: Gpu, gpus: int) -> float:
        """Gathered weights to the engines, once over the link between all ``gpus``."""
        return 2 * self.parameters / gpu.link(gpus)


QWEN_1_7B = Model(1.72e9, 2 * 28 * 8 * 128 * 2)
QWEN_8B = Model(8.19e9, 2 * 36 * 8 * 128 * 2)
CODER_3B = Model(3.09e9, 2 * 36 * 2 * 128 * 2)


@dataclass(frozen=True)
class Setting:
    """One experiment: its work, the model of each pool, and the optimizer steps of an iteration."""

    title: str
    work: Work
    model: Model
    steps: int


def at_grpo(title: str, model: Model, tasks: int = 32, **world: float) -> Setting:
    """K = 4, 4 turns, two agents one after the other, two steps; 600 of at most 2,048 tokens (assumed)."""
    stages = tuple((Speaker(name, 1000, 600, 2048, 0.8),) for name in ("tool", "plan"))
    return Setting(title, Work(tasks, 4, 4, stages, **{"world_s": 0.2, **world}), model, 2)  # type: ignore[arg-type]


SETTINGS = (
    at_grpo("AT-GRPO, two Qwen3-1.7B", QWEN_1_7B),
    at_grpo("AT-GRPO, two Qwen3-8B", QWEN_8B),
    at_grpo("AT-GRPO, two Qwen3-8B, 512 tasks", QWEN_8B, 512),
    at_grpo("AT-GRPO, two Qwen3-8B, tools that take 10 s, heavy tail", QWEN_8B, world_s=10.0, world_spread=2.0),
    Setting(
        "MAGRPO, two Qwen2.5-Coder-3B, batch of 16",
        Work(16, 4, 1, ((Speaker("tool", 300, 150, 256, 0.5), Speaker("plan", 300, 150, 256, 0.5)),), world_s=0.5),
        CODER_3B,
        1,
    ),
)


def update_s(setting: Setting, gpu: Gpu, devices: int) -> float:
    """Of one pool on ``devices``, its weights sharded.

    A node (a prompt with its K completions) is the unit of work: devices beyond the nodes of a mini-batch wait.  A
    token costs 8 flops per parameter (activations are recomputed); weights are gathered twice per micro-batch and
    gradients scattered once, at the same time as the arithmetic.
    """
    work, parameters = setting.work, setting.model.parameters
    speaker = work.stages[0][0]
    nodes = work.tasks * work.turns * (1 if work.tree else work.k)
    nodes_per_step = math.ceil(math.ceil(nodes / setting.steps) / devices)
    tokens = speaker.prompt + (work.k if work.tree else 1) * speaker.mean
    compute = nodes_per_step * tokens * 8 * parameters / (gpu.flops * gpu.train_share)
    gather = 3 * 2 * parameters * (devices - 1) / devices / gpu.link(devices) * nodes_per_step
    optimizer = 28 * parameters / devices / (gpu.memory_bytes * gpu.memory_share)  # float32 states, read and written
    return setting.steps * (max(compute, gather) + optimizer)


def iteration(setting: Setting, gpu: Gpu, gpus: int, staleness: int, seeds: int = 1) -> tuple[list[float], float]:
    """Seconds by seed with the best split of ``gpus``, and the share of them that generates.

    Each pool has the same number.  With staleness 0 engines and learner take turns on all of them; else each has its
    own.
    """
    own = gpus // 2
    speaker = setting.work.stages[0][0]
    cost = setting.model.cost(gpu, speaker.prompt + speaker.mean / 2)
    shares = [1.0] if not staleness else [each for each in (0.25, 0.5, 0.75) if 1 <= own * each <= own - 1]
    found: list[tuple[list[float], float]] = []
    for share in shares:
        engines = max(1, round(own * share))
        learner = own if not staleness else own - engines
        pools = {name: Pool(cost, engines) for name in ("tool", "plan")}
        update, load = update_s(setting, gpu, learner), setting.model.load_s(gpu, gpus)
        seconds = []
        for seed in range(seeds):
            run = Training(setting.work, pools, update_s=update, load_s=load, staleness=staleness, seed=seed)
            seconds.append(run.run(40, first=20).iteration_s)
        found.append((seconds, share))
    return min(found, key=lambda each: sum(each[0]))


def table(
    gpu: Gpu,
    counts: Sequence[int] = (2, 8, 64, 512),
    bounds: Sequence[int] = (0, 1, 4),
    *,
    seeds: int = 1,
    titles: str = "",
) -> Iterator[str]:
    """Markdown: seconds of an iteration, and the speed-up over staleness 0 with the same GPUs, of the settings whose
    title has ``titles``.  Of several seeds the mean, and the least and most seconds."""
    yield "| setting | GPUs | " + " | ".join(f"staleness {bound}" for bound in bounds) + " | of it update |"
    yield "| --- " * (len(bounds) + 3) + "|"
    for setting in (each for each in SETTINGS if titles in each.title):
        for gpus in counts:
            cells = []
            base = 0.0
            for bound in bounds:
                if bound and gpus < 4:
                    cells.append("")
                    continue
                seconds, share = iteration(setting, gpu, gpus, bound, seeds)
                mean = statistics.fmean(seconds)
                base = base or mean
                notes = [f"{min(seconds):.1f} to {max(seconds):.1f}"] if seeds > 1 else []
                notes += [f"{base / mean:.2f}x", f"{share:.0%} generate"] if bound else []
                cells.append(f"{mean:.1f} s" + (f" ({', '.join(notes)})" if notes else ""))
            cells.append(f"{update_s(setting, gpu, gpus // 2):.1f} s")
            yield f"| {setting.title} | {gpus} | " + " | ".join(cells) + " |"


# ---- the world that waits, of bench/staleness.py --------------------------------------------------------------------


class Waiting(Work):
    """Work whose world takes what that of ``bench/staleness.py waits`` takes, and nothing besides."""

    def world(self, rng: Random) -> float:
        return min(0.5 * rng.paretovariate(1.5), 10.0)


def waits(seeds: int) -> Iterator[str]:
    """Markdown: what ``bench/staleness.py waits`` measures, 3 tasks of 4 independent episodes in each of 8 iterations,
    two agents, two turns; means over ``seeds``, the least and the most.
    """
    speaker = Speaker("p", 0, 1, 1)
    work = Waiting(3, 4, 2, ((speaker,), (speaker,)), tree=False)

    def speed(staleness: int, seed: int) -> float:
        """Episodes per second."""
        pools = {"p": Pool(Cost(0.0, 0.0, 0.0), 1)}
        training = Training(work, pools, update_s=0.0, load_s=0.0, staleness=staleness, seed=seed, last=8)
        return work.tasks * work.k / training.run(8, first=0).iteration_s

    zero, one = ([speed(staleness, seed) for seed in range(seeds)] for staleness in (0, 1))
    ratios = [b / a for a, b in zip(zero, one, strict=True)]
    yield "| episodes per second with 0 | with 1 | ratio |"
    yield "| --- | --- | --- |"
    cells = (f"{statistics.fmean(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in (zero, one, ratios))
    yield f"| {' | '.join(cells)} |"


# ---- measured phases ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Phases:
    """Seconds of a run's phases with the sizes of its iterations: medians of what :func:`measure` has run.

    ``steps`` are those of decoding: turns, stages and tokens one after the other; ``tokens`` of all completions."""

    tasks: int
    processes: int
    rollout_s: float
    update_s: float
    load_s: float
    steps: float
    tokens: float
    prompts: float

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, float]], *, tasks: int, processes: int, steps: float) -> Phases:
        """Of rows of metrics of equal work; medians, because a machine has other work to do."""

        def middle(key: str) -> float:
            return statistics.median(row[key] for row in rows)

        times = (middle(f"time/{name}_s") for name in ("rollout", "update", "load"))
        return cls(tasks, processes, *times, steps, middle("rollout/tokens"), middle("rollout/prompt_tokens"))

    @property
    def iteration_s(self) -> float:
        return self.rollout_s + self.update_s + self.load_s


@dataclass(frozen=True)
class Fit:
    """Costs of this machine: an engine's, and an update's seconds at the least and per token of its samples."""

    cost: Cost
    update_s: float
    token_s: float
    load_s: float

    @classmethod
    def of(cls, runs: Sequence[Phases]) -> Fit:
        """By least squares over ``runs`` of one process, relative to what each took.

        Reading a prompt's token is a third of learning from it: the pass forward without the one backward.
        """
        learnt = np.array([[1.0, run.tokens + run.prompts] for run in runs])
        update_s, token_s = _solve(learnt, [run.update_s for run in runs])
        decoded = np.array([[run.steps, run.tokens] for run in runs])
        read = [run.prompts * token_s / 3 for run in runs]
        step_s, row_s = _solve(decoded, [run.rollout_s - each for run, each in zip(runs, read, strict=True)])
        return cls(Cost(step_s, row_s, token_s / 3), update_s, token_s, statistics.fmean(run.load_s for run in runs))

    def predict(self, work: Work, tokens: float, processes: int) -> float:
        """Seconds of an iteration of one pool whose tasks are divided among ``processes``, each with an engine."""
        own = replace(work, tasks=math.ceil(work.tasks / processes))
        update = self.update_s + self.token_s * tokens / processes
        training = Training(own, {"p": Pool(self.cost, 1)}, update_s=update, load_s=self.load_s)
        return training.run(1, first=0).iteration_s


def _solve(left: np.ndarray, right: Sequence[float]) -> tuple[float, float]:
    weights = 1 / np.array(right)
    (first, second), *_ = np.linalg.lstsq(left * weights[:, None], np.array(right) * weights, rcond=None)
    return max(float(first), 0.0), max(float(second), 0.0)


PROMPT, COMPLETION, TURNS, K = 128, 32, 2, 4


def measure(tasks: int, processes: int, iterations: int) -> None:
    """Print the phases of a run of :mod:`lines`, one shared pool in ``processes`` (DDP): CPU seconds of the first."""
    from lines import Runs
    from lines import Setting as Lines

    words = ("threads=1", "strategy.accelerator=cpu")
    words += ("strategy=ddp", f"strategy.devices={processes}") if processes > 1 else ()
    setting = Lines(turns=TURNS, prompt=PROMPT, completion=COMPLETION, k=K, tasks=tasks, regime="shared", words=words)
    # CPU seconds: other programs on the machine do not count, and an iteration of one pool hardly ever waits.
    runs = Runs({"run": setting}, time.process_time)
    rows = [runs.iterate("run") for _ in range(iterations + 1)][1:]
    first = runs.loops["run"].ranks.first
    runs.close()
    if first:
        phases = Phases.of(rows, tasks=tasks, processes=processes, steps=TURNS * COMPLETION)
        print(json.dumps(vars(phases)))


def measured(tasks: int, processes: int = 1, iterations: int = 5) -> Phases:
    """:func:`measure` in a process of its own."""
    command = [sys.executable, __file__, "measure", "--tasks", str(tasks), "--processes", str(processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [*command, "--iterations", str(iterations)], capture_output=True, text=True, check=True, env=environment
    )
    return Phases(**json.loads(done.stdout.splitlines()[-1]))


def check(iterations: int) -> Iterator[str]:
    """Markdown: predicted and measured seconds of runs that the fit has not seen."""
    fitted = [measured(tasks, 1, iterations) for tasks in (2, 8, 24)]
    fit = Fit.of(fitted)
    yield f"fit: {fit}"
    yield "| tasks | processes | predicted | measured | predicted / measured |"
    yield "| --- | --- | --- | --- | --- |"
    for tasks, processes in ((16, 1), (8, 2), (16, 2), (24, 2)):
        run = measured(tasks, processes, iterations)
        speakers = tuple(Speaker("p", PROMPT, COMPLETION, COMPLETION) for _ in range(2))
        predicted = fit.predict(Work(tasks, K, TURNS, (speakers,)), run.tokens + run.prompts, processes)
        ratio = predicted / run.iteration_s
        yield f"| {tasks} | {processes} | {predicted:.2f} s | {run.iteration_s:.2f} s | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "waits", "check", "measure"))
    parser.add_argument("--seeds", type=int, default=1, help="of table and waits")
    parser.add_argument("--setting", default="", help="of table: those with this in their title")
    parser.add_argument("--gpus", type=int, nargs="+", default=[2, 8, 64, 512], help="of table")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=5)
    options = parser.parse_args()
    lines: Iterator[str] = iter(())
    match options.what:
        case "measure":
            measure(options.tasks, options.processes, options.iterations)
        case "table":
            lines = table(H100, options.gpus, seeds=options.seeds, titles=options.setting)
        case "waits":
            lines = waits(options.seeds)
        case "check":
            lines = check(options.iterations)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
