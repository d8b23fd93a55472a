"""Programs of real frameworks, trained by the command as their users would."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.agents
HERE = Path(__file__).parent
SMALL = (
    *("algorithm=mas_grpo", "algorithm.sampler.k=4", "loop.iterations=2", "loop.tasks_per_iteration=4"),
    *("loop.validation_tasks=2", "loop.test_tasks=2"),
)


@pytest.mark.parametrize(
    ("team", "agents", "regime"), [("langgraph_team", 2, "specialized"), ("plain_team", 3, "shared")]
)
def test_a_team_is_trained(tmp_path: Path, team: str, agents: int, regime: str) -> None:
    words = [f"env={team}", f"regime={regime}", *SMALL, f"run_dir={tmp_path / 'run'}"]
    command = [sys.executable, "-m", "troupe", "train", "--config-dir", str(HERE / "configs"), *words]
    environment = os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and all(row["rollout/completions"] >= 4 * 4 * agents for row in rows)
    assert all(row["rollout/lost_episodes"] == 0 == row["faults/world"] for row in rows)
    speakers = {key.split("/")[1] for key in rows[0] if key.endswith("/refused_requests") and key.startswith("rollout")}
    assert len(speakers) == agents and all(rows[0][f"rollout/{each}/refused_requests"] == 0 for each in speakers)
    assert "report.html" in os.listdir(tmp_path / "run")
