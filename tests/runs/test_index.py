"""The index of runs is what their directories hold."""

from pathlib import Path
from typing import Any

import pytest

from troupe.runs.files import RunDirectoryError
from troupe.runs.fingerprint import evaluation_keys, training_hash
from troupe.runs.index import best_match, find_runs


def test_runs_are_found_below_a_folder_and_not_within_a_run(disk: Any, tmp_path: Path) -> None:
    for place in ("game/b", "game/a", "deep/er/c"):
        disk.run(tmp_path / place, disk.config(), disk.scores(1, 5, 6))
    disk.run(tmp_path / "game" / "a" / "evaluations" / "x", disk.config(), disk.scores(1, 5, 6))
    assert [run.path.name for run in find_runs(tmp_path)] == ["c", "a", "b"]
    assert list(find_runs(tmp_path / "nowhere")) == []


@pytest.mark.parametrize(("name", "text"), [("config.yaml", "a: [1"), ("summary.json", '{"a"'), ("versions.json", "1")])
def test_a_file_that_cannot_be_read_is_named(disk: Any, tmp_path: Path, name: str, text: str) -> None:
    config = disk.config()
    disk.run(tmp_path / "other", disk.config(seed=1), disk.scores(1, 5, 6))
    run = disk.run(tmp_path / "run", config, disk.scores(1, 5, 6))
    (run / name).write_text(text)
    with pytest.raises(RunDirectoryError, match=rf"/run: {name} "):
        best_match(find_runs(tmp_path), training_hash(config), evaluation_keys(config))


def test_the_best_match_is_of_this_code_then_evaluated_as_asked_then_the_newest(disk: Any, tmp_path: Path) -> None:
    config, summary = disk.config(), disk.scores(1, 5, 6)
    training, evaluation = training_hash(config), evaluation_keys(config)

    def best() -> str | None:
        run = best_match(find_runs(tmp_path), training, evaluation)
        return run and run.path.name

    disk.run(tmp_path / "9_other_seed", disk.config(seed=1), summary)
    disk.run(tmp_path / "8_unfinished", config, None)
    assert best() is None
    disk.run(tmp_path / "7_older_code", config, summary, code="0")
    assert best() == "7_older_code"
    disk.run(tmp_path / "2_few_tasks", disk.config(test_tasks=2), summary)
    assert best() == "2_few_tasks"
    disk.run(tmp_path / "0_as_asked", config, summary)
    assert best() == "0_as_asked"
    disk.run(tmp_path / "1_newer", config, summary)
    assert best() == "1_newer"
