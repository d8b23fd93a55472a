"""All comparisons with peers: ``bench/results.json``, and one page with the same figures, ``bench/results.md``.

Each figure is a ratio of pairs that were measured one after the other in one process: ``{n, min, median, max}`` over
the pairs.  Above 1 Troupe is faster, or, where the name says memory, needs more; `two_pools_vs_shared` is a time.
Shares are of an iteration's time, `growth_...` are exponents.  ``--only`` measures some of them again and leaves the
others as they are; those that need vLLM's environment are measured in it alone.  A new comparison is one more line in
:data:`COMPARISONS`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import engine
import magrpo
import team_time
import torch
import transformers
import update

RESULTS = Path(__file__).with_name("results.json")

Measure = Callable[[argparse.Namespace], Sequence[float]]


def rollout(setting: str) -> Measure:
    return lambda arguments: engine.measure(setting, arguments.pairs, arguments.seconds)


def update_time(setting: str) -> Measure:
    return lambda arguments: update.time_pairs(setting, arguments.pairs, arguments.seconds)


def update_memory(setting: str) -> Measure:
    return lambda arguments: [update.memory_ratio(setting, arguments.threads) for _ in range(2)]


def magrpo_time(setting: str) -> Measure:
    return lambda arguments: magrpo.time_pairs(setting, arguments.pairs, arguments.seconds)


def share(phase: str) -> Measure:
    return lambda arguments: team_time.phases(max(arguments.pairs, 5), arguments.seconds)[phase]


def growth(phase: str, size: str) -> Measure:
    return lambda arguments: team_time.growth(size, arguments.pairs, arguments.seconds)[phase]


GROWS = {"k": "K", "turns": "turns", "agents": "agents", "prompt": "prompt length", "vocabulary": "vocabulary"}
VLLM = ("rollout_vs_vllm_cpu",)
"""Those that need vLLM's environment, and nothing of the other peers."""

COMPARISONS: dict[str, tuple[str, Measure]] = {
    "rollout_short_vs_hf": ("Tokens per second over generate's: prompt 128, completion 32, K 4", rollout("short")),
    "rollout_long_vs_hf": ("The same: prompt 1024, completion 128, K 8", rollout("long")),
    "rollout_vs_vllm_cpu": (
        "Tokens per second over those of vLLM's LLM.generate: prompt 128, completion 32, K 4",
        lambda arguments: engine.against_vllm("short", arguments.pairs, arguments.seconds),
    ),
    "rollout_smollm2_vs_hf": ("The same on SmolLM2-135M: prompt 256, completion 32, K 4", rollout("smollm2")),
    "update_vs_trl": ("Seconds of TRL's update over ours: prompt 1024, completion 128, K 8", update_time("long")),
    "update_short_vs_trl": ("The same: prompt 128, completion 32, K 4", update_time("short")),
    "update_smollm2_vs_trl": ("The same on SmolLM2-135M: prompt 256, completion 64, K 4", update_time("smollm2")),
    "update_memory_vs_trl": (
        "Our memory above the model over TRL's: prompt 1024, completion 128",
        update_memory("long"),
    ),
    "update_smollm2_memory_vs_trl": ("The same on SmolLM2-135M: prompt 256, completion 64", update_memory("smollm2")),
    "magrpo_vs_comlrl": (
        "Seconds of CoMLRL's iteration over ours: 2 agents, 8 tasks, prompt 128, completion 32, K 4",
        magrpo_time("short"),
    ),
    "magrpo_turns_vs_comlrl": ("The same with 4 tasks and two turns, a tree of K + K^2", magrpo_time("turns")),
    "magrpo_long_vs_comlrl": ("The same: 2 tasks, prompt 1024, completion 128, K 8", magrpo_time("long")),
    "two_pools_vs_shared": (
        "Seconds of an iteration with two specialised pools over one shared, equal samples",
        lambda arguments: team_time.pools(arguments.pairs, arguments.seconds),
    ),
    **{
        f"share_{phase}": (f"Share of an iteration's time: {what}", share(phase))
        for phase, what in team_time.SHARES.items()
    },
    **{
        f"growth_{phase}_{size}": (f"Exponent of {phase} time in {what}", growth(phase, size))
        for size, what in GROWS.items()
        for phase in ("rollout", "update")
    },
}


def summary(values: Sequence[float]) -> dict[str, Any]:
    """{n, min, median, max}"""
    return {"n": len(values), "min": min(values), "median": statistics.median(values), "max": max(values)}


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["# Comparisons with peers", "", "`make bench` writes this page and `results.json`.", ""]
    lines += ["| | n | min | median | max |", "| --- | --- | --- | --- | --- |"]
    for name, result in results.items():
        numbers = " | ".join(f"{result[key]:.2f}" for key in ("min", "median", "max"))
        lines.append(f"| `{name}`: {result['what']} | {result['n']} | {numbers} |")
    machines = sorted({result["machine"] for result in results.values()})
    return "\n".join([*lines, "", *(f"Measured with {machine}." for machine in machines), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(COMPARISONS), action="append")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: on a machine shared with others")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.set_verbosity_error()
    arguments.seconds = {"wall": time.perf_counter, "cpu": time.process_time}[arguments.clock]
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, {platform.machine()}"
    with_vllm = find_spec("vllm") is not None
    for name in arguments.only or [name for name in COMPARISONS if (name in VLLM) is with_vllm]:
        what, measure = COMPARISONS[name]
        machine = f"{versions}, {arguments.threads} threads, {arguments.clock} time"
        result = summary(measure(arguments)) | {"what": what, "machine": machine}
        # Read only now: the part in vLLM's environment may write its results meanwhile.
        results = (json.loads(RESULTS.read_text()) if RESULTS.exists() else {}) | {name: result}
        print(name, json.dumps(results[name]), flush=True)
        ordered = {key: results[key] for key in [*COMPARISONS, *results] if key in results}
        RESULTS.write_text(json.dumps(ordered, indent=2) + "\n")
        RESULTS.with_suffix(".md").write_text(page(ordered))


if __name__ == "__main__":
    main()
