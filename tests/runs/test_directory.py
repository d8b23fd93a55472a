"""A run directory takes one run, loses nothing, and never shows half a file."""

import errno
import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from troupe.errors import DiskFullError
from troupe.runs import directory as run_directory
from troupe.runs.directory import RunDirectory, write_atomic
from troupe.runs.files import FORMAT, RunDirectoryError
from troupe.runs.lock import HeldError


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_new_run_directory(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "runs" / "name", "seed: 0\nname: café\n")
    assert (directory.path / "config.yaml").read_text(encoding="utf-8") == "seed: 0\nname: café\n"
    assert directory.checkpoints.is_dir()
    versions = json.loads((directory.path / "versions.json").read_text())
    assert versions["run_format"] == FORMAT and versions["torch"].startswith("2.")
    assert {"python", "troupe", "transformers", "lightning", "commit"} <= versions.keys()


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    RunDirectory(tmp_path, "")
    assert (tmp_path / "config.yaml").exists()


def test_another_runs_directory_is_refused_and_kept(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path / "run", "seed: 0\n")
    first.metrics({"iteration": 1})
    before = contents(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"run_dir=.*/run already holds another run"):
        RunDirectory(tmp_path / "run", "seed: 1\n")
    assert contents(tmp_path) == before


def test_one_process_at_a_time_trains_there(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path / "run", "seed: 0\n")
    before = contents(tmp_path)
    with pytest.raises(HeldError, match=r"/run is in use by process \d+ on"):
        RunDirectory.reopen(tmp_path / "run")
    assert contents(tmp_path) == before
    first.release()
    second = RunDirectory.reopen(tmp_path / "run")
    with pytest.raises(HeldError):
        RunDirectory.reopen(tmp_path / "run")
    second.release()


def test_what_is_not_a_run_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years of work")
    for path in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(RunDirectoryError, match="is not an empty folder"):
            RunDirectory(path, "")
    assert contents(tmp_path) == {"thesis.tex": b"ten years of work"}


@pytest.mark.parametrize("there", [False, True], ids=["absent", "empty"])
def test_of_two_that_find_a_folder_free_at_once_one_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    path, make = tmp_path / "runs" / "run", run_directory.os.mkdir
    if there:
        path.mkdir(parents=True)
    both, met = threading.Barrier(2), threading.local()

    def mkdir(folder: Path, *arguments: int) -> None:
        if Path(folder).name == "episodes" and not hasattr(met, "once"):
            met.once = both.wait(timeout=10)  # both have looked, and found nothing there
        make(folder, *arguments)

    def claimed(_: int) -> RunDirectory | RunDirectoryError:
        try:
            return RunDirectory(path, "")
        except RunDirectoryError as error:
            return error

    monkeypatch.setattr(run_directory.os, "mkdir", mkdir)
    with ThreadPoolExecutor(2) as threads:
        one, other = sorted(threads.map(claimed, range(2)), key=lambda found: isinstance(found, RunDirectoryError))
    assert isinstance(one, RunDirectory) and (path / "config.yaml").exists()
    assert isinstance(other, RunDirectoryError) and f"run_dir={path} was just claimed by another run" in str(other)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(
        RunDirectoryError, match=r"run_dir=.*/thesis\.tex/run cannot be made: .*/thesis\.tex is not a folder"
    ):
        RunDirectory(tmp_path / "thesis.tex" / "run", "")


def test_metrics_are_appended_line_by_line(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "")
    rows = [{"iteration": 1, "train/p/loss": -0.5}, {"iteration": 2, "eval/success_ci95": [0.1, 0.2]}]
    for count, row in enumerate(rows, 1):
        directory.metrics(row)
        lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == rows[:count]


def test_the_summary_is_replaced_and_episodes_are_named(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "")
    for summary in ({"eval/success": 0.1, "old": 1}, {"eval/success": 0.2}):
        directory.summary(summary)
        assert json.loads((tmp_path / "summary.json").read_text()) == summary
    directory.episodes("test_00003", [{"task_id": "a"}, {"task_id": "b"}])
    lines = (tmp_path / "episodes" / "test_00003.jsonl").read_text().splitlines()
    assert [json.loads(line)["task_id"] for line in lines] == ["a", "b"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "new \ud800")  # half a character cannot be written
    assert path.read_text() == "old"


def test_a_full_disk_is_named_and_takes_nothing(small_disk: Any) -> None:
    directory = RunDirectory(small_disk.path / "run", "")
    row = {"iteration": 1, "text": "x" * 5000}
    directory.metrics(row)
    directory.summary({"a": 1})
    before = contents(directory.path)
    small_disk.fill()
    for write in (
        lambda: directory.metrics({**row, "iteration": 2}),
        lambda: directory.summary({"a": "x" * 7000}),
        lambda: directory.episodes("test_00001", [row] * 4),
    ):
        with pytest.raises(DiskFullError, match=r"^disk full: \d+ MiB free at .*run") as full:
            write()
        assert full.value.errno in (errno.ENOSPC, errno.EFBIG)
    assert contents(directory.path) == before
    small_disk.free()
    directory.metrics({**row, "iteration": 2})
    lines = (directory.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [1, 2]


def test_the_file_appears_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "file", []
    monkeypatch.setattr(run_directory.os, "fsync", lambda descriptor: seen.append(path.exists()))
    write_atomic(path, "text")
    assert seen == [False]
    assert contents(tmp_path) == {"file": b"text"}


def test_versions_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_directory.versions({})["commit"] == "unknown"


def test_a_commit_is_a_hash_whatever_its_tags(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init")
    git("commit", "--allow-empty", "-m", "one")
    git("tag", "-a", "first", "-m", "first")
    for message in (None, "two"):
        if message:
            git("commit", "--allow-empty", "-m", message)
        assert run_directory._commit(tmp_path) == git("rev-parse", "--short", "HEAD").strip()


def test_rewinding_forgets_what_was_played_with_other_weights(tmp_path: Path) -> None:
    """A run that goes on ends with other weights: later results, and those of the last or best weights, are not its."""
    directory = RunDirectory(tmp_path, "seed: 0\n")
    for iteration in (1, 2, 3):
        directory.metrics({"iteration": iteration})
    kept = ["test_00000.jsonl", "validation_00002.jsonl", "train_00002.jsonl"]
    (tmp_path / "episodes").mkdir(exist_ok=True)
    for name in [*kept, "validation_00003.jsonl", "test_00003.jsonl", "test_best.jsonl", "train_00003.jsonl"]:
        (tmp_path / "episodes" / name).write_text("{}\n")
    for name in ("swapped.json", "sealed.json"):
        (tmp_path / name).write_text("{}")
    directory.rewind(2, "seed: 0\n", {})
    assert sorted(file.name for file in (tmp_path / "episodes").iterdir()) == sorted(kept)
    assert not (tmp_path / "swapped.json").exists() and not (tmp_path / "sealed.json").exists()
