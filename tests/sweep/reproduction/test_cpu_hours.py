"""What the missing runs of a table take."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from troupe.sweep.cost import measured_runs
from troupe.sweep.reproduction.cpu_hours import SECONDS, Cost, cost_of
from troupe.sweep.stored import stored_runs

SUMMARY = Path(__file__).parents[3] / "docs/results/reproduction/turns_laptop.jsonl"
CONFIG = {
    "loop": {"iterations": 10, "tasks_per_iteration": 2, "completions": 0, "eval_every": 5}
    | {"validation_tasks": 0, "test_tasks": 0},
    "algorithm": {"sampler": {"_target_": "troupe.rollout.samplers.TreeSampler", "k": 4}},
    "env": {"horizon": 3},
    "team": {"a": "a", "b": "b"},
}


def job(training: str, setting: str = "own", *overrides: str) -> Any:
    return SimpleNamespace(training=training, setting=setting, overrides=overrides)


def plan_of(runs: Path, *parts: tuple[str, str, list[Any]], finished: tuple[Path, ...] = ()) -> Any:
    """A plan of (name, experiment, jobs)."""
    plans = []
    for name, experiment, jobs in parts:
        record = SimpleNamespace(jobs=jobs, runs=runs, finished=finished, adopted={})
        configs = {each.training: CONFIG for each in jobs}
        part = SimpleNamespace(experiment=experiment)
        plans.append(SimpleNamespace(name=name, part=part, record=record, configs=configs))
    return SimpleNamespace(table=SimpleNamespace(name="t"), scale="laptop", parts=plans)


def test_runs_in_a_summary_are_measured(tmp_path: Path) -> None:
    stored = stored_runs(SUMMARY)
    first, second, *_ = stored
    jobs = [job(first.training_hash), job(second.training_hash), job("missing", "own", "loop.completions=5000")]
    plan = plan_of(tmp_path, ("p", "no such experiment", jobs), finished=(SUMMARY,))
    rates = [run.row["cpu_s"] / run.row["completions"] for run in (first, second)]
    assert [rate for rate, _ in measured_runs([plan.parts[0].record]).values()] == rates
    cost = cost_of(plan, {"p": jobs[2:]})
    assert cost.hours == {"missing": pytest.approx(sum(rates) / 2 * 5000 / 3600)}
    assert str(cost) == f"{cost.hours['missing']:.2f} CPU-hours"


def test_without_a_run_the_world_was_measured_elsewhere_or_it_is_not_known(tmp_path: Path) -> None:
    jobs = {"here": [job("1"), job("2")], "there": [job("3")]}
    plan = plan_of(
        tmp_path, ("here", "plan_path_specialized", jobs["here"]), ("there", "code_specialized", jobs["there"])
    )
    cost = cost_of(plan, jobs)
    each = SECONDS["plan_path_specialized"] * 10 * 2 * 4 * 3 * 2 / 3600
    assert cost == Cost({"1": pytest.approx(each), "2": pytest.approx(each), "3": None}, ("t here",), ("t there",))
    assert "no run was measured here of t here: CPU seconds" in str(cost)
    assert str(cost).endswith(", without t there, whose cost is not known")
    assert str(Cost({"3": None}, (), ("t there",))) == "not known: no run was measured yet"


def test_runs_of_two_tables_count_once() -> None:
    both = Cost({"1": 2.0, "2": 3.0}) + Cost({"2": 3.0, "3": 4.0})
    assert str(both) == "9.0 CPU-hours" and len(both.hours) == 3
