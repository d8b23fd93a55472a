"""``troupe train`` with DeepSpeed starts both processes; engines speak with the gathered weights; a run goes on."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from troupe.models.bases.loading import checkpoint_weights

WORDS = [
    *("experiment=sokoban_specialized", "env.horizon=2", "loop.iterations=2", "loop.checkpoint.every=1"),
    *("loop.tasks_per_iteration=3", "loop.validation_tasks=1", "loop.test_tasks=1"),
    *("strategy=deepspeed_zero3", "strategy.accelerator=cpu", "strategy.devices=2"),
    *(f"policies.{name}.optimizer.lr=1e-3" for name in ("tool", "plan")),
]


def train(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "troupe", "train", *WORDS, *words]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deepspeed
def test_a_run_trains_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    train(tmp_path, "run_dir=whole")
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    for policy in ("tool", "plan"):
        # The engine's log-probabilities are the learner's, also after an update that has changed them.
        assert all(row[f"mismatch/{policy}/max_abs_nats"] < 1e-4 for row in rows[:2])
    shutil.copytree(tmp_path / "whole", tmp_path / "again", symlinks=True)
    train(tmp_path, "run_dir=again", "resume=again/checkpoints/iteration_00001")
    for policy in ("tool", "plan"):
        folders = [tmp_path / run / "checkpoints" / "iteration_00002" / policy for run in ("whole", "again")]
        before = checkpoint_weights(tmp_path / "whole" / "checkpoints" / "iteration_00001" / policy)
        whole, again = map(checkpoint_weights, folders)
        assert all(torch.equal(again[key], value) for key, value in whole.items())
        assert max(float((whole[key] - before[key]).abs().max()) for key in whole) > 1e-4
        for rank in range(2):
            states = [(folder / f"training_{rank:05d}.pt").read_bytes() for folder in folders]
            assert states[0] == states[1]
