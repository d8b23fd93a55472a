"""Evaluations on disk: whole or not at all, and found again by what was asked."""

import os
import shutil
from pathlib import Path

import pytest

from troupe.evaluation import records as evaluations
from troupe.evaluation.records import EvaluationError, check_name, find, fingerprint_of


def stored(folder: Path, fingerprint: str, success: float = 0.5) -> evaluations.EvaluationRecord:
    summary = {"conditions": {"sampled": {"success": success}}}
    rows = [{"condition": "sampled", "task_id": "t", "success": True}]
    return evaluations.write(
        folder, fingerprint, "a: 1\n", summary, rows, {"sampled": [{"task_id": "t"}]}, {"code": "1"}
    )


def test_a_fingerprint_depends_on_content_not_on_order() -> None:
    one = fingerprint_of({"a": 1, "b": {"c": [1, 2], "d": 0.5}})
    assert one == fingerprint_of({"b": {"d": 0.5, "c": [1, 2]}, "a": 1})
    assert one != fingerprint_of({"a": 1, "b": {"c": [2, 1], "d": 0.5}})


def test_what_was_asked_is_found_again(tmp_path: Path) -> None:
    stored(tmp_path / "one", "aaa")
    stored(tmp_path / "two", "bbb")
    found = find(tmp_path, "bbb")
    assert found is not None and found.path == tmp_path / "two"
    assert find(tmp_path, "ccc") is None
    assert find(tmp_path / "nowhere", "aaa") is None
    shutil.copytree(tmp_path / "one", tmp_path / ".three.tmp")  # of another process, which is at work on it
    (tmp_path / ".three.tmp" / "summary.json").write_text("{")
    assert find(tmp_path, "ccc") is None


def test_an_evaluation_is_replaced_as_a_whole(tmp_path: Path) -> None:
    stored(tmp_path / "one", "aaa")
    (tmp_path / "one" / "stranger").touch()
    assert stored(tmp_path / "one", "aaa", 0.75).conditions == {"sampled": {"success": 0.75}}
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    files = {str(p.relative_to(tmp_path / "one")) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {"config.yaml", "summary.json", "results.jsonl", "versions.json", "episodes/sampled.jsonl"}


def test_half_an_evaluation_is_never_seen(tmp_path: Path) -> None:
    stored(tmp_path / "one", "aaa")

    def broken():  # type: ignore[no-untyped-def]
        yield {"condition": "sampled"}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluations.write(tmp_path / "one", "aaa", "", {"conditions": {}}, broken(), {}, {})
    found = find(tmp_path, "aaa")
    assert found is not None and found.conditions == {"sampled": {"success": 0.5}}
    with pytest.raises(KeyboardInterrupt):
        evaluations.write(tmp_path / "two", "bbb", "", {"conditions": {}}, broken(), {}, {})
    assert find(tmp_path, "bbb") is None


def test_names(tmp_path: Path) -> None:
    stored(tmp_path / "one", "aaa")
    check_name(tmp_path, "one", "aaa")
    check_name(tmp_path, "new", "bbb")
    with pytest.raises(EvaluationError, match=r"name=one: .* already holds another evaluation"):
        check_name(tmp_path, "one", "bbb")
    for name in ("../one", "a/b", ".hidden", ".."):
        with pytest.raises(EvaluationError, match="must be the name of a folder"):
            check_name(tmp_path, name, "aaa")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("summary.json", '{"fingerprint": "a", "conditions": [1]}', "conditions must hold keys"),
        ("summary.json", "[" * 100_000, "is damaged"),
        ("results.jsonl", "[1]", "results.jsonl, line 1, is no episode"),
        ("results.jsonl", '{"condition": "sampled"}', "line 1, is no episode"),
        ("results.jsonl", "[" * 100_000, "cannot be read"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    folder = stored(tmp_path / "one", "aaa").path
    (folder / name).write_text(text)
    with pytest.raises(EvaluationError, match=message):
        evaluations.EvaluationRecord.read(folder).successes("sampled")


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    record = stored(tmp_path / "one", "aaa")
    (record.path / "results.jsonl").unlink()
    os.mkfifo(record.path / "results.jsonl")
    with pytest.raises(EvaluationError, match="cannot be read: it is no file"):
        record.rows()
