"""The command that compares two evaluations."""

import json
from pathlib import Path

import pytest

from troupe.cli.compare import main
from troupe.evaluation import records

from ..run_fixtures import Disk


def stored(folder: Path, success: bool, tasks: str = "abcdef") -> Path:
    """An evaluation of six tasks, all solved or none."""
    rows = [{"condition": "sampled", "task_id": task, "sample": 0, "success": success} for task in tasks]
    summary = {"conditions": {"sampled": {"success": float(success)}}}
    return records.write(folder, folder.name, "", summary, rows, {}, {}).path


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = stored(tmp_path / "a", False), stored(tmp_path / "b", True)
    main([str(a), str(b)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"A: {a}", f"B: {b}"]
    assert lines[-1].split() == "sampled 6 0.000 1.000 +1.000 (+0.081 to +1.000) 0 6 0.031".split()
    with pytest.raises(SystemExit, match=r"^error: .*/c: there is no such folder"):
        main([str(a), str(tmp_path / "c")])


def test_what_was_changed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], disk: Disk) -> None:
    evaluations = []
    for name, swap, k in (("a", False, 4), ("b", True, 8)):
        run = disk.run(tmp_path / name, disk.config() | {"algorithm": {"sampler": {"k": k}}}, disk.scores(1, 9, 9))
        rows = [{"condition": "sampled", "task_id": "t", "sample": 0, "success": swap}]
        text, summary = f"request: {{swap: {json.dumps(swap)}, tasks: 1}}", {"conditions": {"sampled": {}}}
        evaluations.append(records.write(run / "evaluations" / "own", name, text, summary, rows, {}, {}).path)
    main([str(each) for each in evaluations])
    assert (
        capsys.readouterr().out.splitlines()[2]
        == "B differs from A: swap=true (A: false); algorithm.sampler.k=8 (A: 4)"
    )
    main([str(evaluations[0]), str(evaluations[0])])
    assert "differs" not in capsys.readouterr().out


def test_settings_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boards = ("abcdef", "ghijkl", "mnopqr")  # every seed has its own
    ones = [stored(tmp_path / f"a{i}", False, tasks) for i, tasks in enumerate(boards)]
    others = [stored(tmp_path / f"b{i}", i > 0, tasks) for i, tasks in enumerate(boards)]
    main([",".join(map(str, ones)), ",".join(map(str, others))])
    cells = capsys.readouterr().out.splitlines()[-1].split()
    assert cells[:5] == ["sampled", "3", "0.000", "0.667", "+0.667"]
    # Differences 0, 1, 1: sqrt(2/9 / 3) = 0.272; t(0.975, 2) = 4.303; p of 0.667 / 0.272 = 2.449 with 2 degrees: 0.134.
    low, high = float(cells[5].strip("(")), float(cells[7].strip(")"))
    assert (low, high) == (pytest.approx(0.667 - 1.171, abs=1e-3), 1.0)
    assert float(cells[8]) == pytest.approx(0.134, abs=5e-3)
    with pytest.raises(SystemExit, match=r"^error: A has 2 evaluations and B 3: give one pair per seed"):
        main([",".join(map(str, ones[:2])), ",".join(map(str, others))])
    with pytest.raises(SystemExit, match="different tasks: number 1 is a in"):
        main([",".join(map(str, ones)), ",".join(map(str, others[::-1]))])


def test_a_run_that_was_never_evaluated(run_dir: Path) -> None:
    with pytest.raises(SystemExit, match=rf"^error: the run {run_dir} has no evaluation yet; .*eval run={run_dir}`$"):
        main([str(run_dir), str(run_dir)])
