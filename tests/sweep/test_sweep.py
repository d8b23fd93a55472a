"""Sweeps of tiny real runs: interrupted, started again, failing, stale, side by side."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig

from troupe.reports.runs import find_runs
from troupe.sweep.__main__ import run

SMALL = ["loop.iterations=1", "loop.boards=2", "loop.eval_every=1", "loop.validation_tasks=2", "loop.test_tasks=2"]
SHORT = ["env.horizon=1", "algorithm.sampler.k=2"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every sweep runs in an empty folder; what Hydra sets for the process is put back."""
    handlers = logging.root.handlers[:]
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    HydraConfig.instance().cfg = None
    logging.root.handlers[:] = handlers  # Hydra's write to a stream that ends with the test


def write(name: str, settings: dict[str, list[str]], seeds: list[int], **more: Any) -> str:
    content = {"question": "?", "overrides": [*SMALL, *SHORT], "settings": settings, "seeds": seeds, **more}
    Path(f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return f"sweep={name}.yaml"


def program(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "troupe.sweep", *arguments], env=environment, **pipes)


def directories() -> set[Path]:
    return {file.parent for file in Path("runs").glob("*/*/config.yaml")}


def finished() -> set[Path]:
    return {run.path for run in find_runs(Path("runs")) if run.finished}


def test_an_interrupted_sweep_runs_only_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"shared": ["experiment=sokoban_shared"], "specialized": ["experiment=sokoban_specialized"]}
    sweep = write("six", settings, [0, 1, 2])
    process = program(sweep)
    deadline = time.monotonic() + 120
    while len(directories()) < 3:  # two are finished, the third has begun
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "Traceback" not in err
    assert err.splitlines()[-1] == "interrupted; the same command runs what is missing"
    assert out.count("| missing |") == 4 and out.count("| finished |") == 2
    first = {path: (path / "summary.json").read_bytes() for path in finished()}
    begun = directories()
    assert len(first) == 2 and len(begun) == 3

    assert run([sweep]) == 0
    assert "sweep six: 6 runs, 2 finished, 4 to run" in capsys.readouterr().out
    assert len(directories() - begun) == 4
    assert all((path / "summary.json").read_bytes() == before for path, before in first.items())
    page = Path("runs/sweeps/six/table.md").read_text()
    assert page.count("| finished |") == 6

    everything = directories()
    assert run([sweep]) == 0
    assert "6 finished, 0 to run" in capsys.readouterr().out
    assert directories() == everything


def test_a_failed_run_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"bad": ["loop.boards=0"], "good": []}
    verdict = {"claim": "roles differ", "setting": "good", "over_metric": "swapped", "at_least": 0.0}
    sweep = write("mixed", settings, [0], evaluations=["swapped"], verdicts=[verdict])
    assert run([sweep]) == 1
    folder = Path("runs/sweeps/mixed")
    page = (folder / "table.md").read_text()
    assert "| bad | 0 | failed |" in page and "ConfigError: loop.boards must be a whole number of at least 1" in page
    assert "| good | 0 | finished |" in page and "| roles differ |" in page
    (error,) = (folder / "errors").iterdir()
    assert "Traceback (most recent call last)" in error.read_text()
    (good,) = directories()
    assert json.loads((good / "swapped.json").read_text())["episodes"] == 2

    capsys.readouterr()
    assert run([sweep]) == 1
    assert "2 runs, 1 finished, 1 to run" in capsys.readouterr().out
    assert directories() == {good}


def test_what_cannot_be_swapped_is_a_failure() -> None:
    assert run([write("one", {"shared": ["experiment=sokoban_shared"]}, [0], evaluations=["swapped"])]) == 1
    page = Path("runs/sweeps/one/table.md").read_text()
    assert "| failed |" in page and "swap changes nothing: policy 'shared' speaks for all agents" in page


def test_a_stale_run_is_marked_and_run_again_only_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = write("one", {"a": []}, [0])
    assert run([sweep]) == 0
    (old,) = directories()
    (old / "versions.json").write_text(json.dumps({"code": "older"}))
    capsys.readouterr()
    assert run([sweep]) == 0
    said = capsys.readouterr().out
    assert "1 finished (1 of them stale: rerun_stale=true runs them again), 0 to run" in said
    assert "| a | 0 | finished | code |" in said
    assert run([sweep, "rerun_stale=true"]) == 0
    assert "| a | 0 | finished | code |" not in capsys.readouterr().out
    assert len(directories()) == 2 and old in directories()


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([write("one", {"a": []}, [0, 1]), "dry_run=true"]) == 0
    said = capsys.readouterr().out
    assert "2 runs, 0 finished, 2 to run" in said and "a: loop.iterations=1" in said
    assert not Path("runs").exists()


def test_two_settings_that_train_alike_are_one_run() -> None:
    assert run([write("twins", {"a": [], "b": ["algorithm.sampler.alpha=1"]}, [0])]) == 0
    assert len(directories()) == 1
    assert Path("runs/sweeps/twins/table.md").read_text().count("| finished |") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "settings"),
    [
        ("joblib", ["hydra.launcher.n_jobs=2"]),
        ("submitit_local", ["hydra.launcher.timeout_min=5", "hydra.launcher.submitit_folder=jobs"]),
    ],
)
def test_runs_side_by_side(launcher: str, settings: list[str]) -> None:
    if launcher.startswith("submitit"):
        pytest.importorskip("submitit")
    # Both seeds start in the same second, and one setting fails.
    sweep = write("many", {"a": [], "b": ["algorithm.sampler.alpha=0"], "bad": ["loop.boards=0"]}, [0])
    process = program(sweep, f"launcher={launcher}", *settings)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    assert out.count("| finished |") == 2 and out.count("| failed |") == 1
    assert "ConfigError: loop.boards must be" in out
    assert len(directories()) == 2
    assert sum("after training" in log.read_text() for log in Path("runs/sweeps/many/logs").iterdir()) == 2
