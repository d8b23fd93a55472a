"""The episodes of a run's evaluations: which there are, and which of their lines are whole."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.episodes import EpisodeFile, episode_files, is_episode

Build = Callable[..., Any]


def test_files_are_named_in_the_order_of_playing(run_dir: Path) -> None:
    for name in ("validation_00003", "test_best", "test_00012", "notes", "train_00001"):
        (run_dir / "episodes" / f"{name}.jsonl").touch()
    (run_dir / "episodes" / "test_00001.jsonl.tmp").touch()
    files = episode_files(run_dir)
    assert [(name, file.split, file.iteration) for name, file in files.items()] == [
        ("test_00000", "test", 0),
        ("validation_00002", "validation", 2),
        ("test_00003", "test", 3),
        ("validation_00003", "validation", 3),
        ("test_00012", "test", 12),
        ("test_best", "test", None),
    ]
    assert [episode["success"] for episode in files["test_00003"].episodes] == [True, True, True, False]
    assert files["test_00003"].problems == []
    assert episode_files(run_dir / "nowhere") == {}


def test_lines_that_are_left_out_are_named(run_dir: Path) -> None:
    path = run_dir / "episodes" / "test_00003.jsonl"
    path.write_text('{"task_id": 3}\n' + path.read_text()[:-20])
    file = EpisodeFile(path)
    assert [episode["task_id"] for episode in file.episodes] == ["a", "b", "c"]
    assert file.problems == [
        "episodes/test_00003.jsonl, line 5, is not a whole JSON object and is left out.",
        "episodes/test_00003.jsonl, line 1, is not an episode and is left out.",
    ]


def test_a_text_with_other_line_ends_is_one_line(run_dir: Path) -> None:
    row = {"task_id": "a\u2028b", "success": True, "turns": 0, "messages": []}
    path = run_dir / "episodes" / "test_00003.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n")
    assert EpisodeFile(path).episodes == [row]


@pytest.mark.parametrize(
    ("change", "whole"),
    [({}, True), ({"success": 1}, False), ({"messages": [{}]}, False), ({"turns": None}, False)],
    ids=str,
)
def test_an_episode_has_its_keys(episode: Build, change: dict[str, Any], whole: bool) -> None:
    assert is_episode(episode("a", True) | change) is whole
