"""The one reader of a run directory."""

import json
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.directory import RunDirectory
from troupe.runs.files import RunDirectoryError
from troupe.runs.fingerprint import evaluation_keys, training_hash
from troupe.runs.lock import Lock
from troupe.runs.run import RunReader


def test_a_whole_run(run_dir: Path, rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    run = RunReader(run_dir)
    assert run.problems == []
    assert (run.rows, run.summary, run.status) == (rows, summary, "finished")
    assert run.config["seed"] == 7 and run.config_text.startswith("name: sokoban_shared\n")
    assert run.versions["torch"] == "2.13.0"
    assert run.values("eval/success") == [(2, 0.5)]
    assert [turns for _, turns in run.values("rollout/turns")] == [3, 2, 1]
    assert list(run.episode_files) == ["test_00000", "validation_00002", "test_00003"]
    assert len(run.episode_files["test_00003"].episodes) == 4
    assert (run.checkpoints, run.evaluations, run.of_sweeps) == ([], [], {"swapped": {}, "sealed": {}})


def test_metrics_are_a_table_by_iteration(run_dir: Path, rows: list[dict[str, Any]]) -> None:
    metrics = RunReader(run_dir).metrics
    assert list(metrics.index) == [1, 2, 3] and metrics.index.name == "iteration"
    assert metrics["rollout/turns"].tolist() == [row["rollout/turns"] for row in rows]
    assert metrics["eval/success"].isna().tolist() == [True, False, True]
    (run_dir / "metrics.jsonl").write_text('{"iteration": 1, "a\\ud800": "b\\ud800"}')
    assert "a\ufffd" in str(RunReader(run_dir).metrics)
    (run_dir / "metrics.jsonl").write_text("")
    assert RunReader(run_dir).metrics.empty


def test_episodes_of_an_evaluation(run_dir: Path, old_run: Path) -> None:
    run = RunReader(run_dir)
    files = run.episode_files
    assert run.episodes() == run.episodes("test", 3) == files["test_00003"].episodes
    assert run.episodes("test", 0) == files["test_00000"].episodes
    assert run.episodes("validation") == files["validation_00002"].episodes
    known = "test_00000, validation_00002, test_00003"
    with pytest.raises(RunDirectoryError, match=f"has no episodes 'test_00002'. Known: {known}"):
        run.episodes("test", 2)
    old = RunReader(old_run)
    assert old.episodes("test", "best") == old.episode_files["test_best"].episodes
    assert old.episodes() != old.episodes("test", "best")


def test_the_best_checkpoint_that_is_the_last_was_played_once(disk: Any, tmp_path: Path) -> None:
    run = RunReader(disk.run(tmp_path / "run", disk.config(), disk.scores(1, 5, 6)))
    (run.path / "episodes" / "test_best.jsonl").unlink()
    (run.path / "episodes" / "test_00005.jsonl").write_text("")
    assert run.finished and run.episodes("test", "best") == run.episodes("test", 5) == []


def test_the_writer_and_the_reader_agree(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run", "policies: {}\nloop: {}\nseed: 3\nname: café\n")
    directory.metrics({"iteration": 1, "rollout/turns": 2.0})
    directory.episodes("test_00000", [{"task_id": "a", "success": True, "turns": 0, "messages": []}])
    run = RunReader(directory.path)
    assert run.problems == [] and run.status is None
    directory.summary({"status": "interrupted"})
    run = RunReader(directory.path)
    run.check_format()
    assert run.problems == [] and run.status == "interrupted" and run.stale() == ()
    assert (run.config["name"], run.values("rollout/turns")) == ("café", [(1, 2.0)])
    assert run.episode_files["test_00000"].episodes[0]["task_id"] == "a"
    directory.release()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"is not a run directory: config\.yaml is missing"):
        RunReader(tmp_path)
    for name in ("2026-01-01_10-00-00-0", "2026-01-01_11-00-00-0"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").touch()
    with pytest.raises(RunDirectoryError, match=r"holds 2 run directories, the last of which is .*/2026-01-01_11-00-"):
        RunReader(tmp_path / "runs")
    with pytest.raises(
        RunDirectoryError, match=r"nowhere is not a run directory: there is no such folder: .* has no no"
    ):
        RunReader(tmp_path / "nowhere")
    with pytest.raises(RunDirectoryError, match=r"/runs has no 2026-01-01_11-00-00-1; did you mean 2026-01-01_11-00-"):
        RunReader(tmp_path / "runs" / "2026-01-01_11-00-00-1")
    (tmp_path / "runs" / "sweep.json").touch()
    for folder, which in (("", "/runs"), ("runs", "; it")):
        with pytest.raises(RunDirectoryError, match=f"{which} is a sweep, which `troupe report` and troupe.Sweep read"):
            RunReader(tmp_path / folder)


@pytest.mark.parametrize("name", ["versions.json", "summary.json", "metrics.jsonl"])
def test_a_missing_file_is_named(run_dir: Path, name: str) -> None:
    (run_dir / name).unlink()
    assert RunReader(run_dir).problems == [f"{name} is missing."]


@pytest.mark.parametrize("name", ["versions.json", "summary.json", "config.yaml"])
def test_a_damaged_file_is_an_error_or_empty(run_dir: Path, name: str) -> None:
    (run_dir / name).write_text('{"a": ')
    part = name.partition(".")[0]
    with pytest.raises(RunDirectoryError, match=rf"{run_dir}: {name} "):
        getattr(RunReader(run_dir), part)
    tolerant = RunReader(run_dir, tolerant=True)
    assert getattr(tolerant, part) == {}
    (problem,) = tolerant.problems
    assert problem.startswith(f"{name} ")
    assert RunReader(run_dir).problems == tolerant.problems


def test_half_a_row_and_rows_without_an_iteration_are_left_out(run_dir: Path, rows: list[dict[str, Any]]) -> None:
    file = run_dir / "metrics.jsonl"
    file.write_text('{"train/p/loss": 1}\n' + file.read_text()[:-20])
    run = RunReader(run_dir)
    assert run.rows == rows[:2]
    assert run.problems == [
        "metrics.jsonl, line 4, is not a whole JSON object and is left out.",
        "metrics.jsonl, line 1, has no iteration and is left out.",
    ]


def test_a_run_without_episodes_says_so(run_dir: Path) -> None:
    for file in (run_dir / "episodes").iterdir():
        file.unlink()
    assert RunReader(run_dir).problems == ["episodes/ holds no episodes."]
    (run_dir / "summary.json").unlink()
    with Lock(run_dir / "lock", "the run"):  # one that has just begun lacks nothing
        assert RunReader(run_dir).problems == []
    assert RunReader(run_dir).problems == ["summary.json is missing.", "episodes/ holds no episodes."]


def test_a_cut_configuration_is_named(run_dir: Path) -> None:
    file = run_dir / "config.yaml"
    text = "policies: {both: {}}\nloop: {iterations: 3}\nname: sokoban_shared\nseed: 7\n"
    file.write_text(text)
    assert RunReader(run_dir).problems == []
    file.write_text(text[:43])
    assert RunReader(run_dir).problems == ["config.yaml has no name, seed: it is cut or damaged."]


def test_folders_in_place_of_files_are_named(run_dir: Path) -> None:
    for name in ("summary.json", "metrics.jsonl", "episodes/test_00000.jsonl"):
        (run_dir / name).unlink()
        (run_dir / name).mkdir()
    run = RunReader(run_dir, tolerant=True)
    problems = [*run.problems, *run.episode_problems()]
    assert problems == [
        f"{name} is a folder, not a file." for name in ("summary.json", "metrics.jsonl", "episodes/test_00000.jsonl")
    ]


def test_checkpoints_by_name(run_dir: Path) -> None:
    for name in ("iteration_00010", "iteration_00020", "iteration_00030.tmp"):
        (run_dir / "checkpoints" / name / "tool").mkdir(parents=True)
    (run_dir / "checkpoints" / "last").symlink_to("iteration_00020")
    run = RunReader(run_dir)
    assert run.checkpoints == ["iteration_00010", "iteration_00020", "last"]
    assert (run.checkpoint("last") / "tool").is_dir() and not run.checkpoint("best").exists()


def test_the_checkpoint_that_is_used_where_none_is_named(run_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, folder = RunReader(run_dir), run_dir / "checkpoints"
    assert run.default_checkpoint == "best" and not caplog.text  # which is then said to be missing
    (folder / "iteration_00020").mkdir(parents=True)
    (folder / "last").symlink_to("iteration_00020")
    assert run.default_checkpoint == "last" and f"{run_dir} has no checkpoint 'best'" in caplog.text
    caplog.clear()
    (folder / "best").symlink_to("iteration_00020")
    assert run.default_checkpoint == "best" and not caplog.text


# ---- finished, stale, old --------------------------------------------------------------------------------------------


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
def test_finished_is_at_the_end_and_evaluated(
    disk: Any, tmp_path: Path, changes: dict[str, Any], finished: bool
) -> None:
    summary = {key: value for key, value in (disk.scores(1, 5, 6) | changes).items() if value is not None}
    assert RunReader(disk.run(tmp_path / "run", disk.config(), summary)).finished is finished


def test_a_run_without_a_summary_is_not_finished(disk: Any, tmp_path: Path) -> None:
    assert not RunReader(disk.run(tmp_path / "run", disk.config(), None)).finished


def test_a_run_may_end_by_completions(disk: Any, tmp_path: Path) -> None:
    early = disk.scores(1, 5, 6) | {"iterations": 2}
    assert RunReader(disk.run(tmp_path / "spent", disk.config(completions=100), early)).finished
    assert not RunReader(disk.run(tmp_path / "not", disk.config(completions=101), early)).finished


def test_a_run_that_was_continued_with_other_code_is_stale(disk: Any, tmp_path: Path) -> None:
    path = disk.run(tmp_path / "run", disk.config(), disk.scores(1, 5, 6))
    (path / "versions_00002.json").write_text((path / "versions.json").read_text())
    assert RunReader(path).stale() == ()
    (path / "versions_00003.json").write_text('{"code": "other"}')
    assert RunReader(path).stale() == ("code",)


def test_reasons_to_be_stale(disk: Any, tmp_path: Path) -> None:
    evaluation = evaluation_keys(disk.config())
    run = RunReader(disk.run(tmp_path / "old", disk.config(test_tasks=2), disk.scores(1, 5, 6), code="0"))
    assert run.stale(evaluation) == ("code", "evaluation")
    assert run.stale() == ("code",)
    assert RunReader(disk.run(tmp_path / "new", disk.config(), disk.scores(1, 5, 6))).stale(evaluation) == ()


def test_an_older_run_is_read(old_run: Path) -> None:
    run = RunReader(old_run)
    assert run.problems == [] and run.finished and run.stale() == ("code",)
    assert run.values("rollout/cut_off") == [(1, 0.25), (2, 0.5)]  # its metrics have their own names
    assert run.training_hash == training_hash(run.config) and run.config["loop"]["boards"] == 8  # as it was written
    assert run.checkpoints == ["best", "iteration_00002", "last"]
    assert [episode["success"] for episode in run.episode_files["test_best"].episodes] == [True, True, True, False]


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        ({"code": "x"}, "was written by an older version of Troupe (layout 1, not 2); report and compare read it"),
        ({"run_format": 3}, "was written by a newer version of Troupe (layout 3, not 2); report and compare read it"),
        ({"run_format": "?"}, "was written by an older version of Troupe (layout ?, not 2); report and compare"),
        (None, "has no versions.json, which names the version of its layout"),
    ],
)
def test_another_layout_is_refused_with_the_reason(run_dir: Path, versions: dict[str, Any] | None, reason: str) -> None:
    if versions is None:
        (run_dir / "versions.json").unlink()
    else:
        (run_dir / "versions.json").write_text(json.dumps(versions))
    with pytest.raises(RunDirectoryError) as caught:
        RunReader(run_dir).check_format()
    assert str(caught.value).startswith(f"{run_dir} {reason}") and "\n" not in str(caught.value)
