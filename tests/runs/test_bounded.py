"""Hostile files of a run: refused by name, before they take time or memory."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.runs.bounded import (
    MOST_BYTES,
    UnreadableError,
    json_lines,
    parse_json,
    parse_yaml,
    read_content,
    read_text,
)

YAML = {
    "[" * 40_000: "nested deeper than 64",
    "{a: " * 50_000: "nested deeper than 64",
    "- " * 40_000: "nested deeper than 64",
    "? " * 40_000: "nested deeper than 64",
    "a: &a [*a]": "it has aliases",
    "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]": "it has aliases",
    "a: &a {b: 1}\nc: {<<: *a}": "it has aliases",
    "a: " + "9" * 5000: "a number of more than 300 characters",
    "a: 0x" + "f" * 5000: "a number of more than 300 characters",
    "a: 1" + ":59" * 5000: "a number of more than 300 characters",  # of base 60
    "a: !!int ''": "it has the tag",
    "a: !!timestamp x": "it has the tag",
    "a: !!bool x": "it has the tag",
    "a: !!python/object/apply:os.system [true]": "it has the tag",
    "a: 2001-99-99": "month must be",
    "{[a]: b}": "unhashable",
    "a: [1": "expected",
}


@pytest.mark.parametrize("text", YAML, ids=[text[:24].strip() for text in YAML])
@pytest.mark.parametrize("libyaml", [True, False])
def test_yaml_that_no_run_writes(monkeypatch: pytest.MonkeyPatch, text: str, libyaml: bool) -> None:
    if not libyaml:
        monkeypatch.delattr("yaml.CSafeLoader", raising=False)
    with pytest.raises(yaml.YAMLError, match=YAML[text]):
        parse_yaml(text)


def test_yaml_that_runs_write() -> None:
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    wide = {
        "a": [[n] for n in range(500)],
        "b": {str(n): {} for n in range(500)},
        "long": "1" * 299 + " words" * 99,
        "digits": "7" * 999,
    }
    for content in (deep, wide):
        assert parse_yaml(yaml.safe_dump(content)) == content


def test_json_that_is_nested_too_deep() -> None:
    for text in ("[" * 65, '{"a":' * 65, "[" * 65 + "]" * 65, '["\\\\",' * 65, '["\\"",' * 65, '["]]]]",' * 65):
        with pytest.raises(ValueError, match="nested deeper than 64"):
            parse_json(text)


def test_json_is_in_whole_characters() -> None:
    """No table, page or terminal takes half of a surrogate pair; two halves are one character."""
    assert parse_json(r'{"a\ud800": ["\udc00x", 1, null, NaN]}') == {
        "a\ufffd": ["\ufffdx", 1, None, pytest.approx(math.nan, nan_ok=True)]
    }
    content = {"a": ["\U0001f642", r"\ud800", "\u00e9"]}
    assert parse_json(json.dumps(content)) == content


@pytest.mark.parametrize("text", ["[" * 900, "\\", '"', "\\\\", '\\"[', "[]" * 400])
def test_brackets_in_strings_are_text(text: str) -> None:
    content = {"a": [text] * 70, "b": [[text]]}
    assert parse_json(json.dumps(content)) == content


def test_a_sparse_file_is_refused_by_its_size(tmp_path: Path) -> None:
    for name in ("config.yaml", "summary.json", "metrics.jsonl"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(40 << 30)
        with pytest.raises(UnreadableError, match=f"has {40 << 30} bytes, more than"):
            read_text(tmp_path, name)


def test_a_line_that_does_not_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("troupe.runs.bounded.LONGEST_LINE", 1000)
    with (tmp_path / "metrics.jsonl").open("wb") as file:
        file.write(b'{"a": 1}\n')
        file.truncate(MOST_BYTES[".jsonl"])
    lines = json_lines(tmp_path, "metrics.jsonl")
    assert next(lines) == {"a": 1}
    with pytest.raises(UnreadableError, match="has more than 1000 bytes in line 2"):
        next(lines)


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    run, private = tmp_path / "run", tmp_path / "private"
    (run / "inside").mkdir(parents=True)
    private.mkdir()
    for folder in (private, run / "inside"):
        (folder / "summary.json").write_text("{}")
    (run / "summary.json").symlink_to(private / "summary.json")
    (run / "episodes").symlink_to(private)
    (run / "evaluations").symlink_to("inside")
    (run / "versions.json").symlink_to("versions.json")
    for name in ("summary.json", "episodes/summary.json"):
        with pytest.raises(UnreadableError, match=f"leads out of {run}, to {private}/summary.json"):
            read_content(run, name)
    assert read_content(run, "evaluations/summary.json") == {}
    (tmp_path / "link").symlink_to(run)  # the run itself may be on another disk
    assert read_content(tmp_path / "link", "evaluations/summary.json") == {}
    with pytest.raises((UnreadableError, FileNotFoundError)):
        read_content(run, "versions.json")


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "summary.json")
    (tmp_path / "config.yaml").mkdir()
    for name, reason in (("summary.json", "is no file"), ("config.yaml", "is a folder, not a file")):
        with pytest.raises(UnreadableError, match=reason):
            read_content(tmp_path, name)
    with pytest.raises(FileNotFoundError):
        read_content(tmp_path, "versions.json")
