"""Rows say what the runs say; settings are means over seeds with hand-computed intervals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from troupe.evaluation.statistics import hierarchical_estimate, wilson
from troupe.runs.fingerprint import evaluation_keys
from troupe.runs.run import RunReader
from troupe.sweep.rows import SweepJob, TableRow, aggregate, row_of


def rows(disk: Any, tmp_path: Path, wins: list[int], setting: str = "a") -> list[TableRow]:
    result = []
    for seed, after in enumerate(wins):
        run = RunReader(disk.run(tmp_path / f"{setting}{seed}", disk.config(seed), disk.scores(1, after, after)))
        job = SweepJob(setting, "", seed, ("x=1", f"seed={seed}"), run.training_hash, evaluation_keys(run.config))
        result.append(row_of(job, run, "finished"))
    return result


def test_a_row_holds_what_the_run_says(disk: Any, tmp_path: Path) -> None:
    (row,) = rows(disk, tmp_path, [5])
    assert (row["setting"], row["seed"], row["status"], row["stale"], row["note"]) == ("a", 0, "finished", "", "")
    assert (row["before"], row["after"], row["best"], row["swapped"]) == (0.1, 0.5, 0.5, None)
    assert (row["after_low"], row["after_high"]) == pytest.approx(wilson(5, 10))
    assert [row[key] for key in ("turns", "completions", "tokens", "env_steps", "wall_s")] == [1.5, 100, 1000, 50, 2.0]
    assert row["overrides"] == "x=1 seed=0"
    assert row["run"] == str(tmp_path / "a0")


def test_a_run_that_was_scored_otherwise_says_how(disk: Any, tmp_path: Path) -> None:
    run = RunReader(disk.run(tmp_path / "run", disk.config(test_tasks=2), disk.scores(1, 5, 6), code="0"))
    row = row_of(SweepJob("a", "", 0, (), run.training_hash, evaluation_keys(disk.config())), run, "finished")
    assert row["stale"] == "code and evaluation"
    assert row["note"] == "evaluated with loop.test_tasks=2, asked 10"


def test_a_setting_is_the_mean_over_seeds(disk: Any, tmp_path: Path) -> None:
    missing = row_of(SweepJob("a", "", 3, (), "hash"), None, "failed", "ValueError: no")
    one, other = aggregate([*rows(disk, tmp_path, [4, 5, 6]), *rows(disk, tmp_path, [9], "b"), missing])
    assert (one["setting"], one["runs"], one["n"], one["stale"]) == ("a", 4, 3, 0)
    assert one["after_mean"] == pytest.approx(0.5)
    solved = [np.arange(10) < wins for wins in (4, 5, 6)]
    estimate = hierarchical_estimate([each.astype(float) for each in solved], crossed=True)
    assert estimate is not None and (one["after_low"], one["after_high"]) == estimate.interval
    assert one["swapped_mean"] is None
    assert (other["n"], other["after_mean"], other["after_low"]) == (1, 0.9, None)


def test_a_setting_that_never_succeeds_has_an_interval(disk: Any, tmp_path: Path) -> None:
    (setting,) = aggregate(rows(disk, tmp_path, [0, 0, 0]))
    # 3 seeds of 10 tasks: (t(0.975, 9) / t(0.975, 2))^2 * 10 = (2.262157 / 4.302653)^2 * 10 = 2.764222
    assert (setting["after_low"], setting["after_high"]) == (0.0, pytest.approx(1 - 0.025 ** (1 / 2.764222), abs=1e-6))


def test_without_its_episodes_a_run_gives_no_interval(disk: Any, tmp_path: Path) -> None:
    all_rows = rows(disk, tmp_path, [4, 5])
    (tmp_path / "a0" / "episodes" / "test_00004.jsonl").unlink()
    run = RunReader(tmp_path / "a0")
    job = SweepJob("a", "", 0, (), run.training_hash, evaluation_keys(run.config))
    (setting,) = aggregate([row_of(job, run, "finished"), all_rows[1]])
    assert (setting["n"], setting["after_mean"], setting["after_low"]) == (2, pytest.approx(0.45), None)
    assert setting["before_low"] is not None


def test_runs_that_never_reach_the_threshold_count_in_the_median(disk: Any, tmp_path: Path) -> None:
    three = rows(disk, tmp_path, [4, 5, 6])
    for reached, median in (((100, None, 300), 300), ((100, None, None), None), ((100, 200, None), 200)):
        (setting,) = aggregate(row | {"to_threshold": value} for row, value in zip(three, reached, strict=True))
        assert setting["to_threshold"] == median
        assert setting["reached"] == sum(value is not None for value in reached)
