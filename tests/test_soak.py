"""bench/soak.py: what it calls flat, and a small share of its kills."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture(scope="module")
def soak() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCH))
    import soak

    yield soak
    sys.path.remove(str(BENCH))
    del sys.modules["soak"], sys.modules["soak_kill"]


def steady(second: int) -> float:
    return 600 + 5 * (second % 7)  # batches differ


GROWING = {
    "steady": (steady, True),
    "only while it warms up": (lambda second: steady(second) - (300 - second if second < 300 else 0), True),
    "a leak": (lambda second: steady(second) + second * 0.02, False),
    "a leak of half the limit": (lambda second: steady(second) + second * 0.006, True),
    "a quarter of the time, more": (lambda second: steady(second) + 30 * (700 < second < 1000), False),
    "single samples": (lambda second: steady(second) + 100 * (second % 50 == 0), True),
}


@pytest.mark.parametrize("case", GROWING)
def test_flat(soak: ModuleType, case: str) -> None:
    memory, flat = GROWING[case]
    verdict = soak.flatness([(float(second), memory(second)) for second in range(1200)])
    assert verdict.flat == flat, verdict


def test_too_few_samples_have_no_verdict(soak: ModuleType) -> None:
    with pytest.raises(ValueError, match="7 samples after warm-up are too few"):
        soak.flatness([(float(second), 600.0) for second in range(9)])


def assert_the_same(folder: Path, regime: str, kills: int, *words: str) -> None:
    """`bench/soak.py kill` of one regime: as many kills as asked for, and no difference."""
    command = [sys.executable, BENCH / "soak.py", "kill", "--regimes", regime, "--kills", str(kills), "--out", folder]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"{regime}: {kills} kills .*: the same to the bit", done.stdout), done.stdout


@pytest.mark.slow
def test_a_run_that_is_killed_twice_is_the_same_to_the_bit(tmp_path: Path) -> None:
    """Seed 0 draws the update of the second iteration, and then the writing of a checkpoint."""
    few = [f"loop.{key}=1" for key in ("checkpoint.every", "tasks_per_iteration", "validation_tasks", "test_tasks")]
    assert_the_same(tmp_path, "magrpo", 2, "--iterations", "2", *few)


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_is_the_same_to_the_bit(tmp_path: Path) -> None:
    assert_the_same(tmp_path, "sandboxed", 3)
