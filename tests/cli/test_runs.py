"""The command that lists runs."""

import json
import os
import sys
from pathlib import Path

import pytest

from troupe.cli.runs import main
from troupe.reports.report import write_report
from troupe.runs.index import readable_runs
from troupe.runs.lock import Lock

from ..run_fixtures import Disk, make_episode


@pytest.fixture
def runs(tmp_path: Path, disk: Disk) -> Path:
    """One run of each status."""
    finished = disk.scores(1, 9, 9)
    disk.run(tmp_path / "a", disk.config(), finished)
    disk.run(tmp_path / "b", disk.config(), {"status": "interrupted", "iterations": 2, "eval_before/success": 0.1})
    killed = disk.run(tmp_path / "c", disk.config(), None)
    (killed / "metrics.jsonl").write_text('{"iteration": 1}\n')
    disk.run(tmp_path / "d", disk.config(), None)
    disk.run(tmp_path / "deep" / "e", disk.config(), finished).joinpath("config.yaml").write_text("{{: [")
    return tmp_path


def test_every_status(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Lock(runs / "d" / "lock", "d"):
        main([str(runs)])
    out = capsys.readouterr().out.replace(f"{runs}/", "")
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "run status success iterations wall time differs",
        "a finished 10.0% -> 90.0% 4 2 s",
        "b interrupted 10.0% 2 of 4",
        "c killed 1 of 4",
        "d running 0 of 4",
        "deep/e damaged",
        "deep/e: config.yaml cannot be read (not YAML: while parsing a flow node).",
    ]


def test_a_name_of_a_folder_may_be_no_text(tmp_path: Path, disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    disk.run(tmp_path / os.fsdecode(b"a\xff"), disk.config(), None)
    main([str(tmp_path)])
    assert "a\ufffd  killed" in capsys.readouterr().out


def test_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(runs / "a"), str(runs / "deep"), "--json"])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "run": str(runs / "a"),
        "status": "finished",
        "success_before": 0.1,
        "success_after": 0.9,
        "iterations": 4,
        "of_iterations": 4,
        "wall_s": 2.0,
        "differs": {},
    }
    assert second["status"] == "damaged" and "config.yaml cannot be read" in second["problem"]


def test_what_differs_between_runs_of_a_name_within_the_width(
    tmp_path: Path, disk: Disk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, seed, k in (("a", 0, 4), ("b", 1, 8)):
        both = {name: {"sampler": {"k": k}} for name in ("algorithm", "diagnostics")}  # told once
        disk.run(tmp_path / folder, disk.config() | {"seed": seed, **both}, None)
    disk.run(tmp_path / "c", disk.config() | {"name": "another", "seed": 5}, None)
    monkeypatch.chdir(tmp_path)
    main(["."])
    listed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[1:]]
    assert listed == ["a killed 0 of 4 seed=0 k=4", "b killed 0 of 4 seed=1 k=8", "c killed 0 of 4"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "55")
    main(["."])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 55 and lines[1].split() == ["a", "killed", "0", "of", "4", "seed=0"]
    assert lines[2].split() == ["k=4"]


def test_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path)])
    assert capsys.readouterr().out == f"no runs below {tmp_path}\n"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"^error: runs: there is no such folder: .* has no runs$"):
        main([])


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for path, reason in {
        tmp_path / "file": "it is a file",
        tmp_path / "file" / "a" / "b": f"{tmp_path}/file is a file",
        tmp_path / "link": "it is no folder",
        Path("/dev/null"): "it is no folder",
    }.items():
        with pytest.raises(SystemExit, match=rf"^error: {path}: {reason}$"):
            main([str(path)])


def test_what_a_run_says_is_no_command_for_the_terminal(
    tmp_path: Path, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = {"status": "\x1b]0;title\x07\nrun\u202e finished", "iterations": [1], "time/wall_s": 10**400}
    disk.run(tmp_path / "a\x1b[2J", disk.config(), hostile | {"eval_before/success": float("nan")})
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "a␛[2J" in out and "␛]0;title␇␊run\ufffd finished" in out and len(out.splitlines()) == 2
    assert not {"\x1b", "\x07"} & set(out)


HOSTILE = {
    "config.yaml": ["[" * 40_000, "{a: " * 50_000, "a: &a [1]\nb: *a", "a: 1" + ":59" * 9000, "- " * 40_000],
    "summary.json": ["[" * 100_000, '{"status":' * 300, '{"a": ' + "9" * 5000 + "}", '{"iterations": [[[]]]}'],
    "versions.json": ["[" * 100_000, '{"code": [], "run_format": {}}', '{"code": {"a": 1}}'],
    "metrics.jsonl": ['{"iteration": 1, "a": ' + "[" * 900 + "]" * 900 + "}", '{"iteration": 1' + "0" * 4000 + "}"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in HOSTILE.items() for text in texts])
def test_one_damaged_folder_does_not_hide_the_others(
    tmp_path: Path, disk: Disk, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    for folder in ("a", "b", "c"):
        disk.run(tmp_path / folder, disk.config(), disk.scores(1, 9, 9))
    (tmp_path / "b" / name).write_text(text)
    main([str(tmp_path)])
    lines = [line.split()[:2] for line in capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()]
    assert ["a", "finished"] in lines and ["c", "finished"] in lines and lines[2][0] == "b"
    others, problems = readable_runs(tmp_path)
    assert {run.path.name for run in others} >= {"a", "c"}
    assert all(f"{tmp_path}/b: {name} " in problem for problem in problems)
    assert name in write_report(tmp_path / "b").read_text() or not problems


def test_sparse_files_and_links_of_a_damaged_folder(
    tmp_path: Path, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("config.yaml", "summary.json", "versions.json", "metrics.jsonl", "episodes/test_00000.jsonl")
    for number, name in enumerate(names):
        for kind in ("sparse", "link", "circle", "pipe"):
            run = disk.run(tmp_path / f"{kind}{number}", disk.config(), disk.scores(1, 9, 9))
            (run / name).unlink()
            if kind == "sparse":
                with (run / name).open("wb") as file:
                    file.truncate(40 << 30)
            elif kind == "link":
                (run / name).symlink_to(disk_file(tmp_path, name))
            elif kind == "circle":
                (run / name).symlink_to(Path(name).name)
            else:
                os.mkfifo(run / name)
            if (run / "config.yaml").is_file():
                page = write_report(run).read_text()
                assert "PRIVATE" not in page and name in page
    main([str(tmp_path), "--json"])
    rows = {Path(row["run"]).name: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["sparse0"]["status"] == rows["link1"]["status"] == "damaged"
    assert "leads out of" in rows["link1"]["problem"] and "has 42949672960 bytes" in rows["sparse0"]["problem"]
    assert rows["sparse4"]["status"] == "finished"


def disk_file(folder: Path, name: str) -> Path:
    """A private file that a run of this user could hold."""
    file = folder / "private" / Path(name).name
    file.parent.mkdir(exist_ok=True)
    episode = make_episode("PRIVATE", True, "PRIVATE")
    content = {"name": "PRIVATE", "seed": 1, "loop": {}, "policies": {}, "error": "PRIVATE", "iteration": 1}
    file.write_text(json.dumps(episode if name.startswith("episodes") else content) + "\n")
    return file
