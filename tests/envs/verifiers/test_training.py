"""An environment of verifiers, trained by the command, resumed, and refused where it would have to be forked."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.verifiers,
    pytest.mark.skipif(importlib.util.find_spec("verifiers") is None, reason="needs the extra verifiers"),
]
ENVIRONMENTS = Path(__file__).parents[2] / "verifiers_environments"


def troupe(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "troupe", "train", "--config-dir", str(ENVIRONMENTS / "configs"), *words]
    environment = os.environ | {"PYTHONPATH": str(ENVIRONMENTS), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=900)


def test_a_team_is_trained_and_goes_on(tmp_path: Path) -> None:
    small = ["algorithm=mas_grpo", "algorithm.sampler.k=2", "loop.tasks_per_iteration=2", "diagnostics=off"]
    small += ["loop.validation_tasks=2", "loop.test_tasks=2", "loop.checkpoint.every=1"]
    run = tmp_path / "run"
    done = troupe(tmp_path, "env=lookup", "regime=specialized", *small, "loop.iterations=1", f"run_dir={run}")
    assert done.returncode == 0, done.stdout + done.stderr
    done = troupe(tmp_path, f"resume={run}", "loop.iterations=2")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["rollout/completions"] for row in rows] == [12, 12]  # 2 tasks x 2 episodes x 3 messages
    assert all(row["rollout/lost_episodes"] == 0 == row["faults/world"] for row in rows)
    assert all("rollout/chief/vf_chief_right" in row for row in rows)
    assert (run / "report.html").is_file()


def test_a_tree_is_refused_and_chains_are_offered(tmp_path: Path) -> None:
    done = troupe(tmp_path, "env=lookup", "regime=specialized", "algorithm=at_grpo", "dry_run=true")
    assert done.returncode != 0
    told = done.stdout + done.stderr
    assert "processes and servers, has no copy" in told and "env.pure=true" in told
    assert "use an algorithm with chains (mas_grpo, dr_mas, ...)" in told
