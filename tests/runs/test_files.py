"""One file is read whole, or its damage is named."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.bounded import parse_yaml
from troupe.runs.files import (
    RunDirectoryError,
    check_links,
    evaluation_folders,
    read_lines,
    read_object,
)


@pytest.mark.parametrize(
    ("name", "content", "damage"),
    [
        ("summary.json", '{"status": ', "summary.json is not whole JSON (Expecting value"),
        ("summary.json", "[1]", "summary.json holds no keys."),
        ("summary.json", "[" * 100_000, "summary.json is not whole JSON (it is nested deeper than 64"),
        ("summary.json", '{"a": ' + "9" * 5000 + "}", "summary.json is not whole JSON (Exceeds the limit"),
        ("config.yaml", "a: " + "9" * 5000, "config.yaml cannot be read (not YAML: it has a number of"),
        ("config.yaml", "a: 2001-99-99", "config.yaml cannot be read (not YAML: month must be"),
        ("config.yaml", "a: &a [*a]", "config.yaml cannot be read (not YAML: it has aliases)"),
        (
            "config.yaml",
            "a: !!python/object/apply:os.system [true]",
            "config.yaml cannot be read (not YAML: it has the tag",
        ),
        ("config.yaml", "a: [1", "config.yaml cannot be read (not YAML: "),
        ("config.yaml", "", "config.yaml holds no keys."),
        ("config.yaml", "text", "config.yaml holds no keys."),
    ],
)
def test_a_damaged_object_has_no_keys_and_a_sentence(tmp_path: Path, name: str, content: str, damage: str) -> None:
    (tmp_path / name).write_text(content)
    keys, sentence = read_object(tmp_path, name)
    assert keys == {} and sentence.startswith(damage) and sentence.endswith(".") and "\n" not in sentence


def test_whole_objects_and_missing_ones(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: {b: 1.0e-05}\n")
    (tmp_path / "summary.json").write_text('{"c": "\u2028"}', encoding="utf-8")
    assert read_object(tmp_path, "config.yaml") == ({"a": {"b": 1e-05}}, "")
    assert read_object(tmp_path, "summary.json") == ({"c": "\u2028"}, "")
    assert read_object(tmp_path, "versions.json") == ({}, "")


def test_half_a_line_costs_that_line_only(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": 1}, {"b": "x\u2028y"}, {"c": 3}]
    text = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "metrics.jsonl").write_text(text[:-3], encoding="utf-8")
    lines, problems = read_lines(tmp_path, "metrics.jsonl")
    assert lines == [(1, {"a": 1}), (3, {"b": "x\u2028y"})]
    assert problems == ["metrics.jsonl, line 5, is not a whole JSON object and is left out."]


def test_lines_that_are_no_objects(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'\xff\xfe\n[1]\n{"a": 1}\n')
    lines, problems = read_lines(tmp_path, "metrics.jsonl")
    assert lines == [(3, {"a": 1})] and [problem[:21] for problem in problems] == [
        "metrics.jsonl, line 1",
        "metrics.jsonl, line 2",
    ]
    assert read_lines(tmp_path, "nowhere.jsonl") == ([], [])


def test_yaml_without_libyaml_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: 1\nb: [true, null, 'x', 2.5]\nc: {d: 1.0e-05}\n"
    fast = parse_yaml(text)
    monkeypatch.delattr("yaml.CSafeLoader", raising=False)
    assert parse_yaml(text) == fast == {"a": 1, "b": [True, None, "x", 2.5], "c": {"d": 1e-05}}


def test_only_finished_evaluations_are_listed(tmp_path: Path) -> None:
    for name in ("two", "one", "half"):
        (tmp_path / "evaluations" / name).mkdir(parents=True)
    for name in ("two", "one"):
        (tmp_path / "evaluations" / name / "summary.json").touch()
    assert [folder.name for folder in evaluation_folders(tmp_path)] == ["one", "two"]
    assert evaluation_folders(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    "place", ["lock", "checkpoints/last/state.json", "evaluations/one", "episodes/test_00000.jsonl"]
)
def test_what_is_neither_file_nor_folder_is_refused(tmp_path: Path, place: str) -> None:
    """Whoever opens a named pipe waits for ever."""
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / place)
    with pytest.raises(RunDirectoryError, match=f"{place} is neither a file nor a folder"):
        check_links(tmp_path)
