"""What is missing or half-written is named; what is whole is kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.files import RunFilesError, read_run


def test_a_whole_run(run_dir: Path, rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    run = read_run(run_dir)
    assert run.problems == []
    assert (run.rows, run.summary) == (rows, summary)
    assert run.config["seed"] == 7 and run.versions["torch"] == "2.13.0"
    assert run.first is not None and run.last is not None
    assert (run.first.name, run.last.name, run.last.iteration) == ("test_00000", "test_00003", 3)
    assert [episode["success"] for episode in run.last.episodes] == [True, True, True, False]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFilesError, match=r"has no config\.yaml: it is not a run directory"):
        read_run(tmp_path)
    with pytest.raises(RunFilesError, match="nowhere is not a folder"):
        read_run(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["versions.json", "summary.json", "metrics.jsonl"])
def test_a_missing_file_is_named(run_dir: Path, name: str) -> None:
    (run_dir / name).unlink()
    assert read_run(run_dir).problems == [f"{name} is missing."]


def test_half_a_line_costs_that_line_only(run_dir: Path, rows: list[dict[str, Any]]) -> None:
    for name, count in (("metrics.jsonl", 3), ("episodes/test_00003.jsonl", 4)):
        file = run_dir / name
        file.write_text(file.read_text()[:-20])
        problems = read_run(run_dir).problems
        assert problems[-1] == f"{name}, line {count}, is not a whole JSON object and is left out."
    run = read_run(run_dir)
    assert run.rows == rows[:2]
    assert run.last is not None and len(run.last.episodes) == 3


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("summary.json", '{"status": ', "summary.json is not whole JSON"),
        ("summary.json", "[1]", "summary.json holds no JSON object."),
        ("config.yaml", "a: [1", "config.yaml cannot be read (not YAML"),
        ("config.yaml", "", "config.yaml cannot be read (it is empty)"),
        ("metrics.jsonl", '{"train/p/loss": 1}\n', "metrics.jsonl, line 1, has no iteration"),
        ("episodes/test_00000.jsonl", '{"task_id": 3}\n', "episodes/test_00000.jsonl, line 1, is not an episode"),
        ("metrics.jsonl", b"\xff\xfe\n", "metrics.jsonl, line 1, is not a whole JSON object"),
    ],
)
def test_what_cannot_be_read_is_named(run_dir: Path, name: str, content: str | bytes, problem: str) -> None:
    (run_dir / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (found,) = read_run(run_dir).problems
    assert found.startswith(problem)


def test_an_interrupted_run_ends_with_its_last_validation(run_dir: Path) -> None:
    (run_dir / "episodes" / "test_00003.jsonl").unlink()
    run = read_run(run_dir)
    assert run.first is not None and run.last is not None
    assert (run.first.name, run.last.name) == ("test_00000", "validation_00002")


def test_a_text_with_other_line_ends_is_one_line(run_dir: Path) -> None:
    row = {"task_id": "a\u2028b", "success": True, "turns": 0, "messages": []}
    (run_dir / "episodes" / "test_00003.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n")
    run = read_run(run_dir)
    assert run.problems == []
    assert run.last is not None and run.last.episodes == [row]
