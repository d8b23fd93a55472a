"""Two processes on two CPUs train the team that one process trains, and end together."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from troupe.models.bases.base_models import base_path
from troupe.models.bases.loading import checkpoint_weights

ROOT = Path(__file__).parent
SMALL = [
    "experiment=sokoban_specialized",
    "loop.tasks_per_iteration=3",  # an odd number: the shares differ
    "loop.eval_every=5",
    "loop.validation_tasks=3",
    "loop.test_tasks=3",
    "env.horizon=2",
    "strategy.precision=64-true",
]
DDP = ["strategy=ddp", "strategy.accelerator=cpu", "strategy.devices=2"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def start(
    cwd: Path, file: str, *overrides: str, world: int, fails: int = -1, lacks: int = -1, loses: int = -1
) -> list[subprocess.Popen[str]]:
    """The processes of a run, each of which knows the others by its environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in range(world):
        mine = {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": str(world)}
        mine |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, str(ROOT / "ddp_worker.py"), file, *map(str, (fails, lacks, loses)), *overrides]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = ENVIRONMENT | (mine if world > 1 else {})
        processes.append(subprocess.Popen(command, cwd=cwd, env=environment, **pipes))
    return processes


def finished(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    said = [process.communicate(timeout=900)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path: Path) -> None:
    """An episode that one process loses is left out in both, and where one lacks memory, both go on as one."""
    small = [*SMALL, "loop.iterations=10", "faults.max_lost_share=0.5"]
    alone = start(tmp_path, "one.json", *small, "run_dir=one", world=1, loses=1)
    more = [*DDP, "run_dir=two", "algorithm.update.max_tokens=300"]
    together = start(tmp_path, "two.json", *small, *more, world=2, lacks=1, loses=1)
    for code, error in finished(alone) + finished(together):
        assert code == 0, error
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("one.json", "two.json"))
    assert one == two and len(one) >= 10 * 2 * 4  # every sampled token of every candidate
    for policy in ("tool", "plan"):
        mine, its = (checkpoint_weights(tmp_path / run / "checkpoints" / "last" / policy) for run in ("one", "two"))
        base = checkpoint_weights(base_path("laptop"))
        assert max((mine[key] - its[key]).abs().max() for key in mine) < 1e-9
        assert max((mine[key] - base[key]).abs().max() for key in mine) > 1e-3
        assert {value.dtype for value in mine.values()} == {torch.float64}
    metrics = [(tmp_path / run / "metrics.jsonl").read_text().splitlines() for run in ("one", "two")]
    for run, lines in zip(("one", "two"), metrics, strict=True):
        for key in ("rollout/lost_episodes", "faults/world"):
            assert [json.loads(line)[key] for line in lines] == [0, 1, *[0] * 8]
        assert json.loads((tmp_path / run / "summary.json").read_text())["faults/world"] == 1
    splits = [[json.loads(line)["faults/oom_splits"] for line in lines] for lines in metrics]
    assert splits == [[0] * 10, [0, 0, 2, *[0] * 7]]
    for left, right in zip(*(map(json.loads, lines) for lines in metrics), strict=True):
        for key in left.keys() | right.keys():
            if key.startswith("eval/") or (key.startswith("rollout/") and not key.endswith("_s")):
                assert left[key] == right[key], key
            if key.startswith("mismatch/"):  # sums over both processes, of what was drawn by both alike
                # Roundings are nats over some 1e-6.
                within = 1e-3 if key.endswith("/roundings") else 1e-9
                assert left[key] == pytest.approx(right[key], abs=within), key
    episodes = [{f.name: f.read_bytes() for f in (tmp_path / run / "episodes").iterdir()} for run in ("one", "two")]
    assert episodes[0] == episodes[1]


@pytest.mark.slow
def test_two_processes_train_adapters_as_one_does(tmp_path: Path) -> None:
    small = [*SMALL[1:], "experiment=sokoban_lora", "loop.iterations=3"]
    alone = start(tmp_path, "one.json", *small, "run_dir=one", world=1)
    together = start(tmp_path, "two.json", *small, *DDP, "run_dir=two", world=2)
    for code, error in finished(alone) + finished(together):
        assert code == 0, error
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("one.json", "two.json"))
    assert one == two and len(one) >= 3 * 3 * 4
    for policy in ("tool", "plan"):
        mine, its = (checkpoint_weights(tmp_path / run / "checkpoints" / "last" / policy) for run in ("one", "two"))
        assert max((mine[key] - its[key]).abs().max() for key in mine) < 1e-9
        assert all(mine[key].any() for key in mine if "lora_B" in key)  # which was 0 at the start


@pytest.mark.slow
def test_too_many_lost_episodes_stop_both(tmp_path: Path) -> None:
    overrides = [*SMALL, *DDP, "loop.iterations=3", "run_dir=run"]  # 1 of 6 is more than a twentieth
    for code, error in finished(start(tmp_path, "x.json", *overrides, world=2, loses=1)):
        assert code != 0 and "1 of 6 episodes are lost, with faults.max_lost_share=0.05" in error
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"


@pytest.mark.slow
def test_an_error_in_one_process_ends_both(tmp_path: Path) -> None:
    overrides = [*SMALL, *DDP, "loop.iterations=5", "run_dir=run"]
    (first, its), (second, other) = finished(start(tmp_path, "x.json", *overrides, world=2, fails=1))
    assert first != 0 and second != 0
    assert "PromptError: no token for this" in other
    assert "OtherRankError: rank 1 has failed" in its and "PromptError" not in its
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["iterations"] == 1
    assert (tmp_path / "run" / "checkpoints" / "last").readlink().name == "iteration_00001"


@pytest.mark.slow
def test_the_command_starts_both_processes_and_stops_both(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "troupe", "train", *SMALL, *DDP, "loop.iterations=1000", "run_dir=run"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, **pipes)
    metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 200
    while not (metrics.exists() and metrics.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)  # to the first process alone
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in err and err.count("interrupted; the results so far are in run") == 1
    assert out.count("before training") == 1  # one process speaks
    rows = metrics.read_text().splitlines()
    last = (tmp_path / "run" / "checkpoints" / "last").readlink().name
    assert last == f"iteration_{len(rows):05d}"
    state = json.loads((tmp_path / "run" / "checkpoints" / "last" / "state.json").read_text())
    assert state["versions"] == {"tool": len(rows), "plan": len(rows)}
