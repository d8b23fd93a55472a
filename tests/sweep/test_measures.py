"""Turns, rewards and seconds of a run, by hand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.run import RunReader
from troupe.sweep.claims import Claim
from troupe.sweep.measures import MEASURES, measures_of, standardised
from troupe.sweep.verdicts import judge


@pytest.fixture
def run(disk: Any, tmp_path: Path) -> RunReader:
    summary = disk.scores(1, 5, 6) | {"eval_before/turns": 3.0, "eval/tool/reward": 2.0, "eval/plan/reward": 1.0}
    summary |= {"eval/env_steps": 600, "eval/episodes": 200}
    path = disk.run(tmp_path / "run", disk.config() | {"team": {"tool": "tool", "plan": "plan"}}, summary)
    rows = [
        {"iteration": i, "rollout/tool/reward": float(i), "rollout/plan/reward": 0.5, "time/rollout_s": 2.0 * i}
        for i in range(1, 6)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RunReader(path)


def test_of_a_run(run: RunReader) -> None:
    values, series = measures_of(run)
    assert series == {"tool": [1.0, 2.0, 3.0, 4.0, 5.0], "plan": [0.5] * 5}
    # The planner's reward never changes: it rises least, from 0 to 0 standard deviations.
    assert values == {
        "turns_before": 3.0,
        "turns_after": 1.5,
        "return_after": 4.5,
        "role_reward_first": 0.0,
        "role_reward_last": 0.0,
        "rollout_s": 6.0,
        "log_rollout_s": math.log(6.0),
    }
    assert values.keys() <= MEASURES.keys()


@pytest.mark.parametrize(("tasks", "kept"), [(3, 4), (8, 5), (9, 5)])
def test_an_iteration_that_the_budget_cut_short_is_no_part_of_the_rewards(
    run: RunReader, disk: Any, tmp_path: Path, tasks: int, kept: int
) -> None:
    config = disk.config() | {"team": run.config["team"], "loop": {"tasks_per_iteration": 8}}
    path = disk.run(tmp_path / "cut", config, dict(run.summary))
    rows = [{**row, "rollout/tasks": tasks if row["iteration"] == 5 else 8} for row in run.rows]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [len(rewards) for rewards in measures_of(RunReader(path))[1].values()] == [kept, kept]


def test_the_return_counts_each_step_once(disk: Any, tmp_path: Path) -> None:
    """Of 10 episodes of a sequence: the first agent's message is not judged, the second's earns 2 points."""
    summary = disk.scores(1, 5, 6) | {"eval/tool/reward": 0.0, "eval/plan/reward": 2.0}
    summary |= {"eval/env_steps": 20, "eval/episodes": 10}
    path = disk.run(tmp_path / "run", disk.config() | {"team": {"tool": "tool", "plan": "plan"}}, summary)
    assert measures_of(RunReader(path))[0]["return_after"] == 2.0


def test_standardised_rewards() -> None:
    assert standardised([1.0, 3.0]) == [-1.0, 1.0]
    assert standardised([2.0, 2.0]) == [0.0, 0.0]


def test_a_difference_of_measures_is_tested_over_seeds() -> None:
    rows = [
        {"setting": "a", "variant": "", "seed": seed, "status": "finished", "stale": "", "outcomes": {}}
        | {"turns_before": 3.0, "turns_after": 3.0 - fall}
        for seed, fall in enumerate((0.9, 1.0, 1.1))
    ]
    claim = Claim("turns fall", "a", 0.5, metric="turns_before", over_metric="turns_after", low_above=0.0)
    (judged,) = judge([claim], rows)
    # t(0.975, 2) = 4.302653 times 0.1 / sqrt(3)
    assert judged["verdict"] == "met" and judged["difference"] == pytest.approx(1.0)
    assert judged["difference_low"] == pytest.approx(1.0 - 4.302653 * 0.1 / math.sqrt(3))
    (alone,) = judge([claim], rows[:1])
    assert (alone["verdict"], alone["why"]) == ("undecided", "one seed gives no interval")
