"""What the missing runs take."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from troupe.sweep.record import cost_text, hours_of
from troupe.sweep.summary import stored_runs

SUMMARY = Path(__file__).parents[2] / "docs/results/reproduction/turns_laptop.jsonl"


def job(training: str, setting: str = "own", completions: float = 5000.0) -> Any:
    return SimpleNamespace(training=training, setting=setting, completions=completions)


def test_runs_in_a_summary_are_measured(tmp_path: Path) -> None:
    first, second, third, *_ = stored_runs(SUMMARY)
    jobs = [job(first.training_hash), job(second.training_hash), job(third.training_hash, "other")]
    missing = [job("1"), job("2", "other"), job("3", "third")]
    record: Any = SimpleNamespace(jobs=[*jobs, *missing], runs=tmp_path, finished=(SUMMARY,))
    one, two, three = (run.row["cpu_s"] / run.row["completions"] for run in (first, second, third))
    hours = hours_of(missing, [record])
    # Of a setting without a run at the mean of all.
    rates = ((one + two) / 2, three, (one + two + three) / 3)
    assert list(hours.values()) == [pytest.approx(rate * 5000 / 3600) for rate in rates]
    assert cost_text(missing[:1], hours) == f"1 runs, {hours['1']:.2f} CPU-hours"


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
