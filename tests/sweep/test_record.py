"""The plan of a sweep, and the state of its jobs by the run directories."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from troupe.runs.files import RunDirectoryError
from troupe.runs.lock import HeldError
from troupe.sweep.outcomes import Outcomes
from troupe.sweep.record import SweepRecord, cost_text, error_file, hours_of
from troupe.sweep.rows import SweepJob


def by_seed(record: SweepRecord) -> list[SweepJob]:
    """The jobs of settings a and b with seed 0, then those with seed 1: pairs are whole as soon as they can be."""
    a0, a1, b0, b1 = record.jobs
    return [a0, b0, a1, b1]


def test_a_record_is_read_as_it_was_written(disk: Any, tmp_path: Path) -> None:
    record = replace(disk.sweep(tmp_path, ("swapped",)), finished=(Path("a.jsonl"),))
    record.write()
    assert SweepRecord.read(record.folder) == record


def test_a_plan_of_an_older_version_is_read(disk: Any, tmp_path: Path) -> None:
    record = disk.sweep(tmp_path)
    file = record.folder / "sweep.json"
    content = json.loads(file.read_text()) | {"block": [1], "adopted": {"a": ["b", "trained without the keys c"]}}
    content["jobs"] = [{k: v for k, v in job.items() if k != "completions"} for job in content["jobs"]]
    keys = ("claim", "setting", "at_least", "over", "metric", "over_metric", "low_above")
    content["verdicts"] = [{key: claim[key] for key in keys} for claim in content["verdicts"]]
    file.write_text(json.dumps(content))
    assert SweepRecord.read(record.folder) == record
    file.write_text(json.dumps(content | {"blocks": []}))
    with pytest.raises(RunDirectoryError, match=r"sweep\.json cannot be read: TypeError.*blocks"):
        SweepRecord.read(record.folder)


def test_sealed_tasks_of_another_seed_are_no_result(disk: Any, tmp_path: Path) -> None:
    record = replace(disk.sweep(tmp_path, ("sealed",)), sealed=9)
    run = disk.run(tmp_path / "game" / "x", disk.config(0, 2), disk.scores(1, 5, 6))
    outcomes = Outcomes("tasks", (1.0, 0.0)).packed()
    figures = {"success": 0.5, "success_ci95": [0.1, 0.9], "episodes": 2, "outcomes": outcomes}
    (run / "sealed.json").write_text(json.dumps(figures | {"task_seed": 9}))
    row = record.rows()[0]
    assert (row["status"], row["sealed"], row["sealed_episodes"]) == ("finished", 0.5, 2) and "sealed" in row[
        "outcomes"
    ]
    row = replace(record, sealed=8).rows()[0]
    assert (row["status"], row["note"]) == ("missing", "not evaluated: sealed")
    assert (row["sealed"], row["sealed_low"], row["sealed_episodes"]) == (None, None, None)
    assert set(row["outcomes"]) == set(record.rows()[0]["outcomes"]) - {"sealed"} and row["after"] == 0.5


def test_an_error_is_out_of_date_once_there_is_a_run(disk: Any, tmp_path: Path) -> None:
    record = disk.sweep(tmp_path)
    error = error_file(record.folder, record.jobs[0].training)
    error.parent.mkdir()
    error.write_text("ValueError: no\n")
    assert (record.rows()[0]["status"], record.rows()[0]["note"]) == ("failed", "ValueError: no")
    disk.run(tmp_path / "game" / "x", disk.config(0, 2), disk.scores(1, 5, 6))
    assert record.rows()[0]["status"] == "finished"


def test_a_run_without_an_evaluation_of_the_plan_is_not_finished(disk: Any, tmp_path: Path) -> None:
    record = disk.sweep(tmp_path, ("swapped",))
    run = disk.run(tmp_path / "game" / "x", disk.config(0, 2), disk.scores(1, 5, 6))
    row = record.rows()[0]
    assert (row["status"], row["note"], row["after"]) == ("missing", "not evaluated: swapped", 0.5)
    assert record.jobs_to_run(False) == by_seed(record)
    (run / "swapped.json").write_text(json.dumps({"success": 0.3, "success_ci95": [0.1, 0.6], "episodes": 10}))
    row = record.rows()[0]
    assert (row["status"], row["swapped"], row["swapped_low"]) == ("finished", 0.3, 0.1)
    assert record.jobs_to_run(False) == by_seed(record)[1:]


def test_stale_runs_are_run_again_where_that_is_asked(disk: Any, tmp_path: Path) -> None:
    record = disk.sweep(tmp_path)
    disk.run(tmp_path / "game" / "x", disk.config(0, 2), disk.scores(1, 5, 6), code="older")
    assert record.jobs_to_run(rerun_stale=False) == by_seed(record)[1:]
    assert record.jobs_to_run(rerun_stale=True) == by_seed(record)


def test_sweeps_that_share_the_runs_share_the_locks(disk: Any, tmp_path: Path) -> None:
    record = disk.sweep(tmp_path)
    with record.lock("hash"):
        record.lock("other").release()
        with pytest.raises(HeldError, match="training hash is in use by process"):
            SweepRecord.read(record.folder).lock("hash")


# ---- what the missing runs take --------------------------------------------------------------------------------------


def job(training: str, setting: str = "own", completions: float = 5000.0) -> Any:
    return SimpleNamespace(training=training, setting=setting, completions=completions)


def test_runs_are_measured_by_setting(tmp_path: Path) -> None:
    costs = [("own", 10.0), ("own", 20.0), ("other", 30.0), ("other", None)]
    rows = [{"setting": setting, "cpu_s": cpu_s, "completions": 100} for setting, cpu_s in costs]
    record: Any = SimpleNamespace(rows=lambda: rows)
    missing = [job("1"), job("2", "other"), job("3", "third")]
    hours = hours_of(missing, [record])
    # Of a setting without a run at the mean of all.
    assert list(hours.values()) == [pytest.approx(rate * 5000 / 3600) for rate in (0.15, 0.3, 0.2)]
    assert cost_text(missing[:1], hours) == f"1 run, {hours['1']:.2f} CPU-hours"


def test_runs_below_the_folder_are_measured_and_others_are_counted(disk: Any, tmp_path: Path) -> None:
    record = disk.sweep(tmp_path)
    missing = [job("1"), job("2")]
    hours = hours_of(missing, [record])
    assert cost_text(missing, hours) == "2 runs, of which none was measured yet: at most 5,000 completions each"
    disk.run(tmp_path / "game" / "x", disk.config(0, 2), disk.scores(1, 5, 6) | {"time/cpu_s": 360.0})
    hours = hours_of(missing, [record])
    assert hours == {"1": pytest.approx(5.0), "2": pytest.approx(5.0)}  # 3.6 s per completion
    assert (
        cost_text(missing, hours | {"2": None}) == "2 runs, 5.00 CPU-hours, 1 of them: at most 5,000 completions each"
    )
