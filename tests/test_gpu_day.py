"""bench/gpu_day.py, as far as it needs no GPU: its limits, its table, and a rehearsal of all stages."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture(scope="module")
def day() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCH))
    import gpu_day

    yield gpu_day
    sys.path.remove(str(BENCH))
    del sys.modules["gpu_day"]


@pytest.mark.slow
def test_the_table_has_what_was_measured_and_what_failed(day: ModuleType, tmp_path: Path) -> None:
    first = {"rollout/tokens": 9, "rollout/prompt_tokens": 9, "time/rollout_s": 90.0, "time/update_s": 90.0}
    row = {"rollout/tokens": 40, "rollout/prompt_tokens": 20, "time/rollout_s": 0.5, "time/update_s": 0.25}
    row |= {"time/load_s": 0.125, "time/trees_s": 0.0, "train/aux/mfu": 0.024}
    (tmp_path / "coder").mkdir()
    rows = [first, row, row | {"time/trees_s": 1.0}, row]
    (tmp_path / "coder" / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "2-sleep.log").write_text("noise\n| sleep     | adapters, level 2 | 0.01 nats at most |\n")
    text = day.table(tmp_path, {"team (4)": "ended after 270 s"})
    assert "| coder | 3 | 40 | 0.50 | 80 | 0.25 | 240 | 2.4 % | 0.12 | 0.00 | 1.21 |" in text
    assert "| sleep     | adapters, level 2 | 0.01 nats at most |" in text and "noise" not in text
    assert "- **team (4)** failed: ended after 270 s" in text


def test_a_stage_that_fails_or_lasts_too_long_is_ended(day: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def ran(code: str, limit_s: int) -> Any:
        return day.run(day.Stage("team", (sys.executable, "-c", code), limit_s), log)

    assert ran("print('here')", 60) is None and log.read_text() == "here\n"
    assert ran("raise SystemExit(3)", 60) == f"ended with 3, see {log}"
    assert ran("import time; time.sleep(600)", 1) == "ended after 1 s"


@pytest.mark.slow
def test_a_rehearsal_runs_all_stages_and_names_those_without_time(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", str(BENCH / "gpu_day.py"), "--rehearse", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + "".join(f.read_text() for f in tmp_path.glob("*.log"))
    text = (tmp_path / "table.md").read_text()
    assert all(f"| {name} | 1 |" in text for name in ("coder", "team-tiny", "fsdp2")) and " passed" in text
    late = subprocess.run([*command, "--minutes", "0", "--stage", "fsdp2"], capture_output=True, text=True, check=False)
    assert late.returncode == 1 and "no time was left" in late.stdout
