"""The index of runs is what their directories say."""

from pathlib import Path
from typing import Any

import pytest

from troupe.runs.directory import RunDirectoryError
from troupe.runs.fingerprint import evaluation_keys, training_hash
from troupe.runs.run import best_match, find_runs, read_run


@pytest.mark.parametrize(
    ("changes", "finished"),
    [
        ({}, True),
        ({"iterations": 3}, False),
        ({"status": "interrupted"}, False),
        ({"eval_best/success": None}, False),
        ({"eval_before/success": None}, False),
    ],
    ids=str,
)
def test_finished_is_at_the_end_and_scored(disk: Any, tmp_path: Path, changes: dict[str, Any], finished: bool) -> None:
    summary = {key: value for key, value in (disk.scores(1, 5, 6) | changes).items() if value is not None}
    assert read_run(disk.run(tmp_path / "run", disk.config(), summary)).finished is finished


def test_a_run_without_a_summary_is_not_finished(disk: Any, tmp_path: Path) -> None:
    assert not read_run(disk.run(tmp_path / "run", disk.config(), None)).finished


def test_a_run_may_end_by_completions(disk: Any, tmp_path: Path) -> None:
    early = disk.scores(1, 5, 6) | {"iterations": 2}
    assert read_run(disk.run(tmp_path / "spent", disk.config(completions=100), early)).finished
    assert not read_run(disk.run(tmp_path / "not", disk.config(completions=101), early)).finished


def test_runs_are_found_below_a_folder_and_not_within_a_run(disk: Any, tmp_path: Path) -> None:
    for place in ("game/b", "game/a", "deep/er/c"):
        disk.run(tmp_path / place, disk.config(), disk.scores(1, 5, 6))
    disk.run(tmp_path / "game" / "a" / "evaluations" / "x", disk.config(), disk.scores(1, 5, 6))
    assert [run.path.name for run in find_runs(tmp_path)] == ["c", "a", "b"]
    assert list(find_runs(tmp_path / "nowhere")) == []


@pytest.mark.parametrize(("name", "text"), [("config.yaml", "a: [1"), ("summary.json", '{"a"'), ("versions.json", "1")])
def test_a_file_that_cannot_be_read_is_named(disk: Any, tmp_path: Path, name: str, text: str) -> None:
    run = disk.run(tmp_path / "run", disk.config(), disk.scores(1, 5, 6))
    (run / name).write_text(text)
    with pytest.raises(RunDirectoryError, match=rf"run/{name}"):
        list(find_runs(tmp_path))


def test_the_best_match_is_of_this_code_then_evaluated_as_asked_then_the_newest(disk: Any, tmp_path: Path) -> None:
    asked, done = disk.config(), disk.scores(1, 5, 6)
    wanted, evaluation = training_hash(asked), evaluation_keys(asked)

    def best() -> str | None:
        run = best_match(find_runs(tmp_path), wanted, evaluation)
        return run and run.path.name

    disk.run(tmp_path / "9_other_seed", disk.config(seed=1), done)
    disk.run(tmp_path / "8_unfinished", asked, None)
    assert best() is None
    disk.run(tmp_path / "7_older_code", asked, done, code="0")
    assert best() == "7_older_code"
    disk.run(tmp_path / "2_few_tasks", disk.config(test_tasks=2), done)
    assert best() == "2_few_tasks"
    disk.run(tmp_path / "0_as_asked", asked, done)
    assert best() == "0_as_asked"
    disk.run(tmp_path / "1_newer", asked, done)
    assert best() == "1_newer"


def test_a_run_that_was_continued_with_other_code_is_stale(disk: Any, tmp_path: Path) -> None:
    path = disk.run(tmp_path / "run", disk.config(), disk.scores(1, 5, 6))
    (path / "versions_00002.json").write_text((path / "versions.json").read_text())
    assert read_run(path).stale() == ()
    (path / "versions_00003.json").write_text('{"code": "other"}')
    assert read_run(path).stale() == ("code",)


def test_reasons_to_be_stale(disk: Any, tmp_path: Path) -> None:
    asked = evaluation_keys(disk.config())
    run = read_run(disk.run(tmp_path / "old", disk.config(test_tasks=2), disk.scores(1, 5, 6), code="0"))
    assert run.stale(asked) == ("code", "evaluation")
    assert run.stale() == ("code",)
    assert read_run(disk.run(tmp_path / "new", disk.config(), disk.scores(1, 5, 6))).stale(asked) == ()
