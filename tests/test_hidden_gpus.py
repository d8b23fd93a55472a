"""A machine with a GPU: the default tests do not see it, and a run that has the CPU does not touch it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from troupe.cli import train
from troupe.kernels.memory import release
from troupe.models.pools.fabrics import fabric_of
from troupe.models.pools.strategies import StrategySettings
from troupe.setup.assembly import build

SMALL = ["experiment=signalling_shared", "loop.iterations=1", "loop.tasks_per_iteration=1", "env.horizon=1"]
SMALL += ["loop.validation_tasks=1", "loop.test_tasks=1", "loop.checkpoint.every=1", "diagnostics=off"]


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch and Lightning see a GPU, and whatever would have memory on it fails."""

    def touched(*_: object) -> NoReturn:
        raise AssertionError("a GPU was touched")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("lightning.fabric.accelerators.cuda.num_cuda_devices", lambda: 1)
    for module in (torch.cuda, torch.cuda.random):
        monkeypatch.setattr(module, "device_count", lambda: 1)
        monkeypatch.setattr(module, "_lazy_init", touched)


def test_neither_tests_nor_their_processes_see_a_gpu() -> None:
    told = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'] == '')"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "" and torch.cuda.device_count() == 0
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True).stdout == "True\n"


@pytest.mark.slow
def test_a_run_on_the_cpu_touches_no_gpu(pretended_gpu: None, composed: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    train.train(build(composed(*SMALL, "strategy.accelerator=cpu", f"run_dir={run}")))
    resumed = build(composed(f"resume={run}", "loop.iterations=2"))
    asyncio.run(resumed.team.sleep())
    asyncio.run(resumed.team.close())
    resumed.directory.release()
    release()
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(("accelerator", "precision"), [("cpu", "highest"), ("auto", "medium"), ("cuda", "medium")])
def test_products_in_float32_are_rounded_on_a_gpu_alone(pretended_gpu: None, accelerator: str, precision: str) -> None:
    try:
        fabric_of(StrategySettings(accelerator=accelerator, devices=1, float32_matmul="medium"))
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision("highest")
