"""The command that writes a report."""

import sys
from pathlib import Path

import pytest

from troupe.cli.main import main as program
from troupe.cli.report import main


def test_the_command(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(run_dir)])
    assert capsys.readouterr().out == f"{run_dir / 'report.html'}\n"
    assert (run_dir / "report.html").read_text().startswith("<!doctype html>")
    with pytest.raises(SystemExit, match=r"error: .*episodes is not a run directory: config\.yaml is missing"):
        main([str(run_dir / "episodes")])
    assert not (run_dir / "episodes" / "report.html").exists()


def test_a_report_that_cannot_be_written_is_one_line(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run_dir / "report.html").mkdir(exist_ok=True)
    monkeypatch.setattr(sys, "argv", ["troupe", "report", str(run_dir)])
    with pytest.raises(SystemExit, match=r"^error: \[Errno 21\] Is a directory: '.*report\.html'$"):
        program()
