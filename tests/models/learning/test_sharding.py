"""Two processes that shard weights learn, save and continue what one process does."""

import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from troupe.models.bases.loading import checkpoint_weights

from ..conftest import equal

WORKER = Path(__file__).parent / "sharding_worker.py"
CLOSE = {"full": 1e-12, "full32": 1e-6, "kl": 1e-12, "lora": 1e-12}
"""By case, how far weights of one process and of two may be apart."""
POLICIES = runpy.run_path(str(WORKER))["POLICIES"]


def start(folder: Path, strategy: str, world: int, cases: Collection[str]) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    processes = []
    for rank in range(world):
        mine = meeting | {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": str(world)} if world > 1 else {}
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | mine
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = [sys.executable, str(WORKER), str(folder), strategy, *cases]
        processes.append(subprocess.Popen(command, env=environment, **pipes))
    return processes


def apart(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    assert weights.keys() == others.keys()
    return max(float((weights[key] - others[key]).abs().max()) for key in weights)


def played(folder: Path, cases: Mapping[str, Collection[str]]) -> dict[str, list[dict[str, Any]]]:
    """By strategy, what each of its processes found of its ``cases``: one of a single device, two of the others."""
    worlds = {strategy: 1 if strategy == "single_device" else 2 for strategy in cases}
    processes = [each for strategy, world in worlds.items() for each in start(folder, strategy, world, cases[strategy])]
    try:
        for process in processes:
            said, _ = process.communicate(timeout=400)
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()
    return {
        strategy: [torch.load(folder / f"{strategy}_{rank}.pt", weights_only=False) for rank in range(world)]
        for strategy, world in worlds.items()
    }


@pytest.mark.slow
def test_two_processes_that_shard_do_what_one_does(tmp_path: Path) -> None:
    """All cases in one test, since starting processes takes longer than the cases."""
    found = played(tmp_path, {"single_device": CLOSE, "fsdp2": CLOSE})
    (alone,), both = found["single_device"], found["fsdp2"]
    for case, names in ((case, POLICIES[case]) for case in CLOSE):
        one = alone[f"{case}-gathered"]
        for form in ("sharded", "gathered"):
            rows = [each[f"{case}-{form}"] for each in both]
            for row in rows:
                for name in names:
                    assert apart(row["learnt"][name], one["learnt"][name]) < CLOSE[case], (case, form)
                    assert apart(row["undisturbed"][name]["model"], row["learnt"][name]) > 1e-4, (case, form)
                    # Clipping is exercised, and by the norm of all shards.
                    norms = [[metrics[name]["grad_norm"] for metrics in each["metrics"]] for each in (row, one)]
                    assert min(norms[1]) > 0.05 and norms[0] == pytest.approx(norms[1], rel=1e-4), (case, form)
                assert equal(row["resumed"], row["undisturbed"]), (case, form)
            check_parts(case, one["bytes"], [row["bytes"] for row in rows])
            saved = tmp_path / f"fsdp2-{case}-{form}" / names[0]
            assert apart(checkpoint_weights(saved), rows[0]["learnt"][names[0]]) == 0
            files = ["training_00000.pt", "training_00001.pt"] if form == "sharded" else ["training.pt"]
            assert sorted(path.name for path in saved.glob("training*")) == files
        # Of one process and gathered of two, the same file.
        states = [
            torch.load(tmp_path / f"{strategy}-{case}-gathered" / names[0] / "training.pt", weights_only=True)
            for strategy in ("single_device", "fsdp2")
        ]
        for index, values in states[0]["optimizer"]["state"].items():
            for key, value in values.items():
                torch.testing.assert_close(states[1]["optimizer"]["state"][index][key], value, atol=1e-6, rtol=1e-6)


def check_parts(case: str, whole: dict[str, int], parts: list[dict[str, int]]) -> None:
    """Each of two processes holds a half, of LoRA a half of the base and the adapters."""
    kept = 2 * whole["gradients"] if case == "lora" else 0  # of two adapters
    for what in ("weights", "gradients", "optimizer"):
        held = [part[what] for part in parts]
        if case == "lora" and what != "weights":
            assert held == [whole[what]] * 2
        else:
            assert sum(held) == whole[what] + kept, (case, what)
            assert abs(held[0] - held[1]) < 0.01 * whole[what], (case, what)
