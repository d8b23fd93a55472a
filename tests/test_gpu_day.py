"""bench/gpu_day.py, as far as it needs no GPU: its plan, its limits, its arithmetic, its table, and a tiny team."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from transformers import Qwen3Config, Qwen3ForCausalLM

BENCH = Path(__file__).parents[1] / "bench"
ROW = {"shape": "tiny", "sleep": 1, "engine": "vllm", "device": "NVIDIA H100 80GB HBM3", "torch": "2.11.0"}
ROW |= {"k": 2, "completions": 4, "prompt_tokens": 20, "tokens": 40, "adapter": 1000, "peak_gib": 3.5}
ROW |= {"rollout_s": 0.5, "update_s": 0.25, "load_s": 0.125}


@pytest.fixture(scope="module")
def day() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCH))
    import gpu_day

    yield gpu_day
    sys.path.remove(str(BENCH))
    del sys.modules["gpu_day"]


def program(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_dry_run_plans_less_than_40_minutes() -> None:
    done = program(BENCH / "gpu_day.py", "--dry-run", "--torch", "2.11.0")
    *plan, last = done.stdout.splitlines()
    assert [line.split()[0] for line in plan] == ["setup", "setup", "test", "team", "team", "team"]
    assert "vllm==0.22.1" in plan[1] and "--shape 1.7b --sleep 1" in plan[-1]
    assert int(last.split()[-2]) < 40
    only = program(BENCH / "gpu_day.py", "--dry-run", "--torch", "2.13.0", "--stage", "setup").stdout
    assert "vllm==0.32.0" in only and "pytest -m gpu" not in only
    refused = program(BENCH / "gpu_day.py", "--dry-run", "--torch", "2.10.0")
    assert refused.returncode == 1 and "torch 2.10.0" in refused.stderr


def test_mfu_by_hand(day: ModuleType) -> None:
    # 2 layers of 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 weights, a head of 64 * 512.
    weights, head = 2 * 36_864, 32_768
    assert day.SHAPES["tiny"].layer_weights == weights
    # 2 nodes of 10 tokens and 40 tokens that follow: 2 * 50 pairs in the prompts, 40 * 15 after them.
    forward = 2 * weights * 60 + 2 * head * 40 + 4 * 2 * 4 * 16 * 700
    assert forward == 11_827_200
    assert day.mfu(ROW, 1.0) == pytest.approx((forward / 0.5 / 1e12, (2 * forward + 6 * 1000 * 60) / 0.25 / 1e12))
    assert day.mfu(ROW, None) == (None, None)
    assert [day.peak_tflops(name) for name in ("NVIDIA L40S", "NVIDIA L4", "a new one")] == [362, 121, None]


def test_the_shapes_are_those_of_qwen3(day: ModuleType) -> None:
    shape = day.SHAPES["tiny"]
    layers = Qwen3ForCausalLM(Qwen3Config(**shape.qwen3)).model.layers
    assert shape.layer_weights == sum(p.numel() for p in layers.parameters() if p.dim() == 2)
    # As published: 0.44 and 1.4 billion without the embedding.
    assert [round(day.SHAPES[name].layer_weights / 1e9, 2) for name in ("0.6b", "1.7b")] == [0.44, 1.41]


def test_the_table_has_what_was_measured_and_what_failed(day: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "team-tiny-sleep1").mkdir()
    (tmp_path / "team-tiny-sleep1" / "row.json").write_text(json.dumps(ROW))
    (tmp_path / "2-test.log").write_text("noise\n| sleep     | adapters, level 2 | 0.01 nats at most |\n")
    failed = {"team (4)": "ended after 270 s"}
    text = day.table(day.rows_in(tmp_path), failed, 0.001, day.checks_in(tmp_path))
    assert "NVIDIA H100 80GB HBM3, torch 2.11.0, vllm" in text
    assert "| tiny | 1 | 80 | 2.4 % | 240 | 9.6 % | 0.125 | 0.88 | 3.50 |" in text
    assert "| sleep     | adapters, level 2 | 0.01 nats at most |" in text and "noise" not in text
    assert "- **team (4)** failed: ended after 270 s" in text
    unknown = day.table([ROW | {"device": "a new one"}], {})
    assert "| 80 | unknown | 240 | unknown |" in unknown


def test_a_stage_that_fails_or_lasts_too_long_is_ended(day: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def ran(code: str, limit_s: int) -> Any:
        return day.run(day.Stage("team", (sys.executable, "-c", code), limit_s), log)

    assert ran("print('here')", 60) is None and log.read_text() == "here\n"
    assert ran("raise SystemExit(3)", 60) == f"ended with 3, see {log}"
    assert ran("import time; time.sleep(600)", 1) == "ended after 1 s"


@pytest.mark.slow
def test_a_tiny_team_is_trained_and_measured(day: ModuleType, tmp_path: Path) -> None:
    words = ["--shape", "tiny", "--engine", "torch", "--iterations", "2", "--out", tmp_path / "team-tiny"]
    done = program(BENCH / "gpu_team.py", *words)
    assert done.returncode == 0, done.stderr
    [row] = day.rows_in(tmp_path)
    # 2 tasks, 2 agents, K 8; 8 tokens each unless one ends by itself.
    assert (row["completions"], row["prompt_tokens"]) == (32, 2 * 2 * 32) and 32 < row["tokens"] <= 32 * 8
    # Rank 16 on 7 matrices of 2 layers.
    outer = (64 + 64) + 2 * (64 + 32) + (64 + 64) + 3 * (64 + 128)
    assert row["adapter"] == 2 * 16 * outer
    assert 0 < day.mfu(row, 1.0)[0] < 1 and "| tiny | 1 |" in day.table([row], {}, 1.0)
