"""Whole runs with vLLM, as a user starts them: the engine's process is killed, and Ctrl-C is pressed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ....processes import alive, below, command, until

pytestmark = pytest.mark.vllm

SMALL = "loop.tasks_per_iteration=6 loop.eval_every=100 loop.validation_tasks=1 loop.test_tasks=2 env.horizon=2".split()
PATIENCE_S = 400  # on a busy machine


def started(path: Path, *words: str, experiment: str = "sokoban_lora") -> subprocess.Popen[str]:
    """``troupe`` in a process group of its own, as a shell starts it."""
    command = [sys.executable, "-m", "troupe", "train", f"experiment={experiment}", "engine=vllm", f"run_dir={path}"]
    command += [*SMALL, "engine.kv_cache_gib=0.1", *words]
    return subprocess.Popen(
        command, cwd=path.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def rows(path: Path) -> list[dict[str, Any]]:
    file = path / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def wait(run: subprocess.Popen[str], until: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not until():
        if run.poll() is not None:
            assert run.stdout is not None
            raise AssertionError(f"the run has ended: {run.stdout.read()[-3000:]}")
        assert time.monotonic() < end
        time.sleep(0.05)


def engines(run: subprocess.Popen[str], sign: str = "VLLM") -> list[int]:
    """Processes of the run that hold a model: those that vLLM renames, once they have begun."""
    return [pid for pid in below(run.pid) if sign in command(pid)]


def test_an_engine_killed_in_the_middle_of_an_iteration_is_replaced_and_the_run_finishes(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run = started(path, "loop.iterations=12", "loop.tasks_per_iteration=24", "loop.test_tasks=100")
    wait(run, lambda: len(rows(path)) >= 2)
    [engine] = engines(run)  # both policies speak through one
    os.kill(engine, signal.SIGKILL)
    before = len(rows(path))
    wait(run, lambda: len(rows(path)) == 12)
    [engine] = engines(run)
    os.kill(engine, signal.SIGKILL)  # in the evaluation at the end, after which no row is written
    output, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, output[-3000:]
    metrics = rows(path)
    assert [row["iteration"] for row in metrics] == list(range(1, 13))
    assert sum(row["faults/engine"] for row in metrics) == 1
    assert metrics[before]["faults/engine"] == 1, "it was killed in the iteration after the last row"
    assert all(row["rollout/tasks"] == 24 and row["rollout/completions"] % 4 == 0 for row in metrics)
    assert all(abs(row[f"train/{policy}/behaviour_kl_nats"]) < 1e-4 for row in metrics for policy in ("tool", "plan"))
    summary = json.loads((path / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["faults/engine"] == 2
    assert "policy 'tool, plan': vLLM's process has ended" in output and "restart 2 of 3" in output


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run = started(path, "loop.iterations=1000", "regime=specialized")
    wait(run, lambda: len(rows(path)) >= 1)
    there = engines(run)
    assert len(there) == 2
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    output, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1 and "interrupted; the results so far are in" in output, output[-3000:]
    assert not any(Path(f"/proc/{pid}").exists() for pid in there)
    assert json.loads((path / "summary.json").read_text())["status"] == "interrupted"


def test_a_run_with_two_shards_of_a_model_and_adapters_on_it(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run = started(path, "loop.iterations=2", "engine.tensor_parallel=2")
    output, _ = run.communicate(timeout=2 * PATIENCE_S)
    assert run.returncode == 0, output[-3000:]
    metrics = rows(path)
    assert len(metrics) == 2 and all(0 < row["rollout/probe_nats"] < 1e-4 for row in metrics)
    assert all(abs(row[f"train/{policy}/behaviour_kl_nats"]) < 1e-6 for row in metrics for policy in ("tool", "plan"))
    summary = json.loads((path / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["faults/engine"] == 0


def test_no_process_of_a_shard_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    run = started(tmp_path / "run", "loop.iterations=1000", "engine.tensor_parallel=2", experiment="sokoban_shared")
    wait(run, lambda: len(engines(run, "VLLM::Worker_TP")) == 2)
    there = engines(run)
    assert len(there) == 3
    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=PATIENCE_S)
    asyncio.run(until(lambda: not any(map(alive, there))))


@pytest.mark.parametrize("experiment", ["code_specialized", "math_lora"])
def test_base_models_with_other_heads_speak_too(tmp_path: Path, experiment: str) -> None:
    path = tmp_path / "run"
    run = started(path, "loop.iterations=2", "env.horizon=1", experiment=experiment)
    output, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, output[-3000:]
    metrics = rows(path)
    assert len(metrics) == 2 and all(0 < row["rollout/probe_nats"] < 1e-4 for row in metrics)
    kls = [abs(value) for row in metrics for name, value in row.items() if name.endswith("/behaviour_kl_nats")]
    assert len(kls) == 4 and max(kls) < 1e-6


def test_ctrl_c_while_vllm_starts_ends_the_run_at_once(tmp_path: Path) -> None:
    run = started(tmp_path / "run")
    wait(run, lambda: bool(engines(run, "spawn_main")))
    time.sleep(0.5)
    there = engines(run, "spawn_main")
    os.killpg(run.pid, signal.SIGINT)
    run.communicate(timeout=30)
    assert run.returncode != 0 and there and not any(Path(f"/proc/{pid}").exists() for pid in there)
