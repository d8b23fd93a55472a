"""Tables are made from what lies on the disk, again and again."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.directory import RunDirectoryError
from troupe.runs.fingerprint import evaluation_keys, training_hash
from troupe.sweep.record import SweepRecord, error_file
from troupe.sweep.rows import Job
from troupe.sweep.tables import main, markdown, write_tables
from troupe.sweep.verdicts import Verdict


def record(disk: Any, root: Path, evaluations: tuple[str, ...] = ()) -> SweepRecord:
    """Settings a and b, two seeds each; nothing has run."""
    jobs = []
    for setting, k in (("a", 2), ("b", 4)):
        for seed in (0, 1):
            config = disk.config(seed, k)
            job = Job(setting, "", seed, (f"k={k}", f"seed={seed}"), training_hash(config), evaluation_keys(config))
            jobs.append(job)
    verdict = Verdict("b beats a", "b", 0.05, over="a")
    made = SweepRecord(root / "sweeps" / "s", "s", "Is b better?", root, evaluations, [verdict], jobs)
    made.write()
    return made


def test_a_record_is_read_as_it_was_written(disk: Any, tmp_path: Path) -> None:
    made = record(disk, tmp_path, ("swapped",))
    assert SweepRecord.read(made.folder) == made


def test_a_sweep_can_be_moved_with_its_runs(disk: Any, tmp_path: Path) -> None:
    record(disk, tmp_path / "runs")
    disk.run(tmp_path / "runs" / "game" / "x", disk.config(0, 2), disk.scores(1, 5, 6))
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    _, rows = write_tables(tmp_path / "elsewhere" / "sweeps" / "s")
    assert [row["status"] for row in rows] == ["finished", "missing", "missing", "missing"]


def test_the_tables_of_a_sweep(disk: Any, tmp_path: Path) -> None:
    made = record(disk, tmp_path)
    for seed, k, after, code in ((0, 2, 4, None), (1, 2, 6, "older"), (0, 4, 7, None)):
        disk.run(tmp_path / "game" / f"{seed}{k}", disk.config(seed, k), disk.scores(1, after, after), code)
    failed = error_file(made.folder, made.jobs[3].training)
    failed.parent.mkdir()
    failed.write_text("ValueError: no | way\n\nTraceback ...")

    page, rows = write_tables(made.folder)

    assert page == (made.folder / "table.md").read_text()
    with (made.folder / "runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    assert [row["status"] for row in runs] == [row["status"] for row in rows]
    assert [row["status"] for row in runs] == ["finished", "finished", "finished", "failed"]
    assert [row["stale"] for row in runs] == ["", "code", "", ""]
    assert [row["after"] for row in runs] == ["0.4", "0.6", "0.7", ""]
    assert runs[3]["note"] == "ValueError: no | way"
    with (made.folder / "settings.csv").open() as file:
        a, b = csv.DictReader(file)
    assert (a["setting"], a["n"], a["stale"], float(a["after_mean"])) == ("a", "2", "1", pytest.approx(0.5))
    assert (b["n"], b["runs"], b["after_low"]) == ("1", "2", "")
    assert "| a | 2 | 1 | 0.100 (0.100 to 0.100) | 0.500 (-0.771 to 1.771) |" in page
    assert "| b beats a | at least 0.05 | 0.300 | 1 | undecided | 1 of 2 pairs finished; 1 of 2 pairs hold a" in page
    assert "ValueError: no \\| way" in page


def test_an_error_is_history_once_the_run_is_there(disk: Any, tmp_path: Path) -> None:
    made = record(disk, tmp_path)
    failed = error_file(made.folder, made.jobs[0].training)
    failed.parent.mkdir()
    failed.write_text("ValueError: no\n")
    disk.run(tmp_path / "game" / "x", disk.config(0, 2), disk.scores(1, 5, 6))
    assert made.rows()[0]["status"] == "finished"


def test_a_run_that_owes_an_evaluation_is_not_finished(disk: Any, tmp_path: Path) -> None:
    made = record(disk, tmp_path, ("swapped",))
    run = disk.run(tmp_path / "game" / "x", disk.config(0, 2), disk.scores(1, 5, 6))
    row = made.rows()[0]
    assert (row["status"], row["note"], row["after"]) == ("missing", "not evaluated: swapped", 0.5)
    (run / "swapped.json").write_text(json.dumps({"success": 0.3, "success_ci95": [0.1, 0.6], "episodes": 10}))
    row = made.rows()[0]
    assert (row["status"], row["swapped"], row["swapped_low"]) == ("finished", 0.3, 0.1)


def test_columns_that_are_empty_throughout_are_left_out() -> None:
    assert markdown(["a", "b", "c"], [["1", "", ""], ["", "", "2"]]) == "| a | c |\n| --- | --- |\n| 1 |  |\n|  | 2 |\n"


def test_the_command_prints_a_list_of_runs(
    disk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = disk.run(tmp_path / "one", disk.config(0), disk.scores(1, 5, 6))
    two = disk.run(tmp_path / "two", disk.config(1), None)
    monkeypatch.setattr(sys, "argv", ["sweep_tables", str(one), str(two)])
    main()
    page = capsys.readouterr().out
    assert "| game | 1 of 2 |" in page
    assert "| game | 1 | unfinished |" in page and str(two) in page


def test_what_is_neither_run_nor_sweep_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunDirectoryError, match=r"nothing is neither a run directory nor a sweep"):
        write_tables(tmp_path / "nothing")
    (tmp_path / "sweep.json").write_text('{"name": "s"}')
    monkeypatch.setattr(sys, "argv", ["sweep_tables", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"error: .*sweep\.json cannot be read: KeyError\('jobs'\)"):
        main()
