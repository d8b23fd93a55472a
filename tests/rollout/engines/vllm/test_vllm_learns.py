"""The team of the README learns with vLLM what it learns with the embedded engine: two whole runs, some minutes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.vllm


def trained(engine: str, path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary and the rows of a run as a user makes it."""
    command = [sys.executable, "-m", "troupe", "train", "experiment=sokoban_specialized", f"engine={engine}"]
    done = subprocess.run([*command, f"run_dir={path}"], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return json.loads((path / "summary.json").read_text()), rows


def test_a_specialized_team_reaches_what_it_reaches_with_the_embedded_engine(tmp_path: Path) -> None:
    found, rows = trained("vllm", tmp_path / "vllm")
    expected, _ = trained("torch", tmp_path / "torch")
    (low, high), (least, most) = found["eval/success_ci95"], expected["eval/success_ci95"]
    assert low <= most and least <= high, f"{found['eval/success']} with vLLM, {expected['eval/success']} with torch"
    assert low > found["eval_before/success_ci95"][1] + 0.5
    for row in rows:  # of two pools, each updated in every iteration
        assert 0 < row["rollout/canary_nats"] < 1e-4
        assert all(abs(row[f"train/{policy}/behaviour_kl_nats"]) < 1e-6 for policy in ("tool", "plan"))
