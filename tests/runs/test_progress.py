"""What a run counts."""

import pytest

from troupe.runs.progress import Progress


def test_an_iteration_is_counted() -> None:
    progress = Progress(iteration=2, completions=100, tokens=1000, env_steps=10)
    metrics = {f"rollout/{key}": value for key, value in {"completions": 60, "tokens": 500, "env_steps": 7}.items()}
    metrics["rollout/tasks"] = 4
    assert progress.count(metrics) == {"iteration": 3, **metrics}
    assert (progress.completions, progress.tokens, progress.env_steps, progress.task_cost) == (160, 1500, 17, 15)
    assert progress.totals() == {
        "time/cpu_s": 0.0,
        "iterations": 3,
        "train/completions": 160,
        "train/tokens": 1500,
        "train/env_steps": 17,
        "time/wall_s": 0.0,
    }


def test_engine_counters_add_up_in_the_summary() -> None:
    progress = Progress(summary={"eval_before/success": 0.5, "remote/retries": 2})
    progress.add_counters({"remote/retries": 1, "faults/engine": 1})
    progress.add_counters({"remote/cost": 0.25})
    assert progress.summary == {
        "eval_before/success": 0.5,
        "remote/retries": 3,
        "faults/engine": 1,
        "remote/cost": 0.25,
    }


def test_a_state_restores_it() -> None:
    progress = Progress(iteration=3, best=0.5, best_iteration=2, summary={"a": 1}, row={"b": 2}, wall_s=1.5)
    assert Progress.of(progress.state_dict() | {"credit": {}}) == progress
    with pytest.raises(ValueError, match="completions is missing"):
        Progress.of({"iteration": 1})
