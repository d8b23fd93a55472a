"""The command that compares two evaluations."""

from pathlib import Path

import pytest

from troupe.cli.compare import main
from troupe.evaluation import records


def stored(folder: Path, success: bool) -> Path:
    """An evaluation of six tasks, all solved or none."""
    rows = [{"condition": "sampled", "task_id": task, "sample": 0, "success": success} for task in "abcdef"]
    summary = {"conditions": {"sampled": {"success": float(success)}}}
    return records.write(folder, folder.name, "", summary, rows, {}, {}).path


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = stored(tmp_path / "a", False), stored(tmp_path / "b", True)
    main([str(a), str(b)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"A: {a}", f"B: {b}"]
    assert lines[-1].split() == "sampled 6 0.000 1.000 +1.000 (+1.000 to +1.000) 0 6 0.031".split()
    with pytest.raises(SystemExit, match=r"^error: .*c holds no evaluation"):
        main([str(a), str(tmp_path / "c")])


def test_a_run_that_was_never_evaluated(run_dir: Path) -> None:
    with pytest.raises(SystemExit, match=rf"^error: the run {run_dir} has no evaluation yet; .*eval run={run_dir}`$"):
        main([str(run_dir), str(run_dir)])
