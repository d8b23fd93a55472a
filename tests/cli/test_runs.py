"""The command that lists runs."""

import json
from pathlib import Path

import pytest

from troupe.cli.runs import main
from troupe.runs.lock import Lock

from ..run_fixtures import Disk


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
        "run status success iterations wall time",
        "a finished 10.0% -> 90.0% 4 2 s",
        "b interrupted 10.0% 2 of 4",
        "c killed 1 of 4",
        "d running 0 of 4",
        "deep/e damaged",
        "deep/e: config.yaml cannot be read (not YAML: while parsing a flow node).",
    ]


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
    }
    assert second["status"] == "damaged" and "config.yaml cannot be read" in second["problem"]


def test_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path)])
    assert capsys.readouterr().out == f"no runs below {tmp_path}\n"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"^error: runs: there is no such folder$"):
        main([])


def test_what_a_run_says_is_no_command_for_the_terminal(
    tmp_path: Path, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = {"status": "\x1b]0;title\x07\nrun\u202e finished", "iterations": [1], "time/wall_s": 10**400}
    disk.run(tmp_path / "a\x1b[2J", disk.config(), hostile | {"eval_before/success": float("nan")})
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "a␛[2J" in out and "␛]0;title␇␊run\ufffd finished" in out and len(out.splitlines()) == 2
    assert not {"\x1b", "\x07"} & set(out)
