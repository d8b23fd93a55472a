"""Every topology with every regime and strategy: two processes (gloo) sample and learn what one does."""

import json
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hydra import compose, initialize_config_module

from troupe.experience import Topology
from troupe.setup.composition import choices

ROOT = Path(__file__).parent
# its page says what is tested here
MATRIX = runpy.run_path(str(ROOT.parent / "docs" / "generators" / "make_strategies.py"))
CASES = {
    f"{way}-{regime}": MATRIX["overrides"](way, regime) for way in MATRIX["TOPOLOGIES"] for regime in MATRIX["TURNS"]
}
CASES["chain-resampled"] = [  # enough episodes that some tasks are solved by some of them, which DAPO's filter demands
    *MATRIX["SMALL"],
    "algorithm=dapo",
    "algorithm.sampler.resample=2",
    "algorithm.sampler.k=4",
    "env.horizon=2",
]
CASES["replay-removal"] = [*MATRIX["SMALL"], "algorithm=counterfactual", "env.horizon=2"]
CASES["chain-baselines"] = [*MATRIX["SMALL"], "algorithm=role_baselines", "env.horizon=2"]
SHARED = ["ddp", "fsdp2"]
DEEPSPEED = ["deepspeed_zero2", "deepspeed_zero3"]
PROCESSES = {"single_device": 1, **dict.fromkeys([*SHARED, *DEEPSPEED], 2)}


def precise(case: str) -> list[str]:
    """In float32 Adam needs a larger eps: its first step has one length for all gradients, also for those near 0."""
    with initialize_config_module("troupe.configs", version_base="1.3"):
        policies = compose("train", overrides=[*CASES[case], "name=x", "run_dir=x"]).policies
    return ["strategy.precision=32-true", *(f"+policies.{name}.optimizer.eps=1e-3" for name in policies)]


def start(folder: Path, strategy: str, cases: dict[str, list[str]]) -> list[subprocess.Popen[str]]:
    """``cases``, in the processes of ``strategy``, which share each."""
    world = PROCESSES[strategy]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    processes = []
    for rank in range(world):
        runs = {
            name: [*CASES[name], *MATRIX["TESTED"][strategy], *words, f"run_dir={folder / f'{strategy}-{name}'}"]
            for name, words in cases.items()
        }
        command = [sys.executable, str(ROOT / "topologies_worker.py"), str(folder / f"{strategy}_{rank}.pt")]
        mine = meeting | {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": str(world)} if world > 1 else {}
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | mine
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen([*command, json.dumps(runs)], cwd=folder, env=environment, **pipes))
    return processes


def test_every_topology_and_regime_is_a_case() -> None:
    assert set(MATRIX["TOPOLOGIES"]) == set(get_args(Topology))
    assert set(MATRIX["TURNS"]) == {name for name in choices("regime") if "_" not in name}
    assert set(MATRIX["TESTED"]) == set(PROCESSES)


@pytest.mark.slow
def test_two_processes_sample_and_learn_what_one_does(tmp_path: Path) -> None:
    exact = ["strategy.precision=64-true"]
    check(tmp_path, {strategy: dict.fromkeys(CASES, exact) for strategy in SHARED}, 1e-9)


@pytest.mark.deepspeed
def test_two_processes_of_deepspeed_sample_and_learn_what_one_does(tmp_path: Path) -> None:
    cases = {name: precise(name) for name in MATRIX["WITH_DEEPSPEED"]}
    full = {name: words for name, words in cases.items() if not name.endswith("lora")}
    check(tmp_path, dict(zip(DEEPSPEED, (cases, full), strict=True)), 1e-6)


def check(tmp_path: Path, cases: dict[str, dict[str, list[str]]], close: float) -> None:
    """All ``cases`` of each strategy at once, since starting processes takes longer than the cases."""
    cases = {"single_device": max(cases.values(), key=len), **cases}
    processes = [each for strategy, runs in cases.items() for each in start(tmp_path, strategy, runs)]
    try:
        for process, (out, error) in [(process, process.communicate(timeout=900)) for process in processes]:
            assert process.returncode == 0, out + error
    finally:
        for process in processes:
            process.kill()
    found = {
        strategy: [torch.load(tmp_path / f"{strategy}_{r}.pt", weights_only=False) for r in range(PROCESSES[strategy])]
        for strategy in cases
    }
    (one,) = found.pop("single_device")
    # In one more case, the sampler of the last process loses a task's episodes.
    assert one["broken"].startswith("ResultCountError: 3 tasks were played, and 2 results came of it")
    for strategy, (first, second) in found.items():
        for case in cases[strategy]:
            check_alike(case, close, one[case], first[case], second[case])
        assert first["broken"] == "OtherRankError: rank 1 has failed"
        assert second["broken"].startswith("ResultCountError: 1 tasks were played, and 0 results came of it")


def check_alike(case: str, close: float, one: dict[str, Any], *others: dict[str, Any]) -> None:
    """``others`` sampled what ``one`` did, the whole of it, and have its weights, which are no longer the base's."""
    assert len({episode["task"]["task_id"] for episode in one["episodes"]}) >= 2 * 3, case  # iterations, boards
    assert any(c["advantage"] for e in one["episodes"] for n in e["nodes"] for c in n["candidates"]), case
    for policy, weights in one["after"].items():
        assert apart(weights, one["before"][policy]) > 1e-4, (case, policy)
    for other in others:
        assert other["episodes"] == one["episodes"], case
        assert other["after"].keys() == one["after"].keys(), case
        for policy, weights in one["after"].items():
            assert apart(weights, other["after"][policy]) < close, (case, policy)


def apart(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    assert weights.keys() == others.keys()
    return max(float((weights[key] - others[key]).abs().max()) for key in weights)
