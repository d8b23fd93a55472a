"""The command that writes a report, of one run or of several."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from troupe.cli.main import main as program
from troupe.cli.report import gather, main

ROOT = Path(__file__).parents[2]


def test_the_command(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(run_dir)])
    assert capsys.readouterr().out == f"{run_dir / 'report.html'}\n"
    assert (run_dir / "report.html").read_text().startswith("<!doctype html>")
    (run_dir / "versions.json").unlink()
    main([str(run_dir)])
    assert capsys.readouterr().err == "versions.json is missing.\n"
    with pytest.raises(SystemExit, match=r"error: .*episodes is not a run directory: config\.yaml is missing"):
        main([str(run_dir / "episodes")])
    assert not (run_dir / "episodes" / "report.html").exists()
    with pytest.raises(SystemExit, match="--out is for several runs"):
        main([str(run_dir), "--out", "x.html"])


def test_a_report_that_cannot_be_written_is_one_line(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run_dir / "report.html").mkdir(exist_ok=True)
    monkeypatch.setattr(sys, "argv", ["troupe", "report", str(run_dir)])
    with pytest.raises(SystemExit, match=r"^error: \[Errno 21\] Is a directory: '.*report\.html'$"):
        program()


def test_several_runs(
    tmp_path: Path, disk: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        disk.run(Path("runs") / str(seed), disk.config(seed), disk.scores(1, 2, 2))
    (tmp_path / "empty").mkdir()
    main(["runs/0", "runs/1", "runs/1", "empty"])
    out, err = capsys.readouterr()
    assert out == "runs.html\n" and err == "empty holds no run: config.yaml is missing. It is left out.\n"
    text = Path("runs.html").read_text()
    assert "<h1>game</h1>" in text and "empty holds no run" in text
    main(["runs", "--out", "pages/all.html"])  # a folder of runs
    assert capsys.readouterr().out == "pages/all.html\n" and Path("pages/all.html").read_text().count("2 runs") > 0
    with pytest.raises(SystemExit, match="error: nothing: there is no such folder"):
        main(["runs/0", "nothing"])
    with pytest.raises(SystemExit, match=r"error: empty holds no run.*no run is left to show"):
        main(["empty", "empty"])


def test_a_sweep(tmp_path: Path, disk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    record = disk.sweep(tmp_path)
    for k, wins in ((2, 2), (4, 8)):
        for seed in (0, 1):
            disk.run(tmp_path / "game" / f"{k}-{seed}", disk.config(seed, k), disk.scores(1, wins, wins))
    main([str(record.folder)])
    assert capsys.readouterr().out == f"{record.folder / 'report.html'}\n"
    text = (record.folder / "report.html").read_text()
    for part in ("<h1>s</h1>", "Is b better?", "b beats a", "<h2>Settings</h2>", "<td>+60.0</td>"):
        assert part in text
    main([str(record.folder), str(tmp_path / "game" / "2-0"), "--out", str(tmp_path / "x.html")])
    assert "3 settings" in (tmp_path / "x.html").read_text()
    again = disk.run(tmp_path / "again", disk.config(0, 2), disk.scores(1, 2, 2))
    content = gather([record.folder, tmp_path / "game" / "2-0", again])
    assert (content.title, [each.name for each in content.settings]) == ("s", ["a", "b", "game, 2-0", "game, again"])


def test_a_reproduced_table(tmp_path: Path, disk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder that `troupe reproduce` names: its parts are sweeps."""
    folder = tmp_path / "reproduce" / "writing" / "laptop"
    for part in ("writing", "more"):
        record = replace(disk.sweep(tmp_path / part), folder=folder / "parts" / part, name=f"writing, {part}")
        record.write()
        for k, wins in ((2, 2), (4, 8)):
            for seed in (0, 1):
                disk.run(tmp_path / part / "game" / f"{k}-{seed}", disk.config(seed, k), disk.scores(1, wins, wins))
    main([str(folder)])
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    text = (folder / "report.html").read_text()
    assert "<h1>writing, more; writing, writing</h1>" in text and "writing, more: Settings" in text
    assert text.count(" less writing, ") == 2 and "writing, more: a" in text  # no setting is compared across worlds
    (folder / "parts" / "more" / "sweep.json").write_text("{")
    main([str(folder)])  # the other part is shown
    assert "parts/more/sweep.json cannot be read" in capsys.readouterr().err
    assert (folder / "report.html").read_text().count("b less a") == 1
    (folder / "parts" / "writing" / "sweep.json").write_text("")
    with pytest.raises(SystemExit, match=r"error: .*more/sweep\.json cannot be read.*no run is left to show"):
        main([str(folder)])
