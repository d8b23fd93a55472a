"""Every topology with every regime: two processes (gloo) sample and learn what one does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import torch

from troupe.experience import Topology

ROOT = Path(__file__).parent
SMALL = [
    "experiment=sokoban_specialized",
    "loop.tasks_per_iteration=3",  # an odd number: the shares differ
    "loop.validation_tasks=1",
    "loop.test_tasks=1",
    "algorithm.sampler.k=2",
    "strategy.precision=64-true",
]
TOPOLOGIES = {
    "tree": ["algorithm=at_grpo"],
    "chain": ["algorithm=mas_grpo"],
    "joint": ["algorithm=magrpo", "env.horizon=1"],
    "replay": ["algorithm=c3"],
}
TURNS = {"specialized": 2, "shared": 1, "lora": 1, "single": 2}
CASES = {
    f"{way}-{regime}": [f"env.horizon={turns}", *words, f"regime={regime}"]
    for way, words in TOPOLOGIES.items()
    for regime, turns in TURNS.items()
}
CASES["chain-resampled"] = ["algorithm=dapo", "algorithm.sampler.resample=2", "env.horizon=1"]
DDP = ["strategy=ddp", "strategy.accelerator=cpu", "strategy.devices=2"]


def start(folder: Path, world: int) -> list[subprocess.Popen[str]]:
    """All cases in one process, or in two that share each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    processes = []
    for rank in range(world):
        cases = {
            name: [*SMALL, *words, *(DDP if world > 1 else []), f"run_dir={folder / f'{world}-{name}'}"]
            for name, words in CASES.items()
        }
        command = [sys.executable, str(ROOT / "topologies_worker.py"), str(folder / f"{world}_{rank}.pt")]
        mine = meeting | {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": str(world)} if world > 1 else {}
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | mine
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen([*command, json.dumps(cases)], cwd=folder, env=environment, **pipes))
    return processes


def test_every_topology_is_a_case() -> None:
    assert set(TOPOLOGIES) == set(get_args(Topology))


def test_two_processes_sample_and_learn_what_one_does(tmp_path: Path) -> None:
    """All cases in one test, since starting processes takes longer than the cases."""
    processes = [*start(tmp_path, 1), *start(tmp_path, 2)]
    try:
        for process, (out, error) in [(process, process.communicate(timeout=240)) for process in processes]:
            assert process.returncode == 0, out + error
    finally:
        for process in processes:
            process.kill()
    one, first, second = (torch.load(tmp_path / file, weights_only=False) for file in ("1_0.pt", "2_0.pt", "2_1.pt"))
    for case in CASES:
        check_alike(case, one[case], first[case], second[case])
    # In one more, the sampler of the last process loses a task's episodes.
    assert one["broken"].startswith("ResultCountError: 3 tasks were played, and 2 results came of it")
    assert first["broken"] == "OtherRankError: rank 1 has failed"
    assert second["broken"].startswith("ResultCountError: 1 tasks were played, and 0 results came of it")


def check_alike(case: str, one: dict[str, Any], *others: dict[str, Any]) -> None:
    """``others`` sampled what ``one`` did, the whole of it, and have its weights, which are no longer the base's."""
    assert len({episode["task"]["task_id"] for episode in one["episodes"]}) >= 2 * 3, case  # iterations, boards
    assert any(c["advantage"] for e in one["episodes"] for n in e["nodes"] for c in n["candidates"]), case
    for policy, weights in one["after"].items():
        assert apart(weights, one["before"][policy]) > 1e-4, (case, policy)
    for other in others:
        assert other["episodes"] == one["episodes"], case
        assert other["after"].keys() == one["after"].keys(), case
        for policy, weights in one["after"].items():
            assert apart(weights, other["after"][policy]) < 1e-9, (case, policy)


def apart(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    assert weights.keys() == others.keys()
    return max(float((weights[key] - others[key]).abs().max()) for key in weights)
