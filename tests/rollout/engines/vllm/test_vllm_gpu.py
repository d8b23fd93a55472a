"""vLLM on a GPU: the checks of ``bench/vllm_gpu.py``, each in its own process; ``make test-gpu`` shows the table."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).parents[4] / "bench" / "vllm_gpu.py"


def program(*words: str) -> int:
    return subprocess.run([sys.executable, "-W", "ignore", str(PROGRAM), *words], check=False).returncode


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU: nothing of vLLM on a GPU was checked")
@pytest.mark.parametrize("check", ["agreement", "sleep", "run", "update"])
def test_on_a_gpu(check: str) -> None:
    assert program(check) == 0


@pytest.mark.vllm
def test_the_program_itself_works_without_one() -> None:
    assert program("update", "--device", "cpu", "--small") == 0
