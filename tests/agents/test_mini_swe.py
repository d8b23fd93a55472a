"""A coding agent, unmodified and in an environment of its own: the repository's tests train a real model's weights."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.agents
HERE = Path(__file__).parent
COMMAND = (
    *("env=mini_swe", "regime=shared", "algorithm=grpo", "algorithm.sampler.k=4", "loop.lockstep=false"),
    *("loop.iterations=2", "loop.tasks_per_iteration=2", "loop.validation_tasks=1", "loop.test_tasks=1"),
    *("diagnostics=off", "--config-dir"),
)


def test_the_tests_of_a_repository_train_it(tmp_path: Path) -> None:
    words = [*COMMAND, str(HERE / "configs"), f"run_dir={tmp_path / 'run'}"]
    environment = os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "troupe", "train", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and all(row["rollout/lost_episodes"] == 0 for row in rows)
    assert any(row["train/shared/grad_norm"] > 0 for row in rows), "every reward was equal"
