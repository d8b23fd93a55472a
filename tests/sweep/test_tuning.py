"""Which point of the grid a setting gets."""

from types import SimpleNamespace
from typing import Any

from troupe.sweep.outcomes import Outcomes, Point
from troupe.sweep.plan import choices
from troupe.sweep.rows import SweepJob

GRID = {"lr": [0.1, 0.2, 0.3]}


def record(scores: dict[str, list[float | None]]) -> Any:
    """A tuning run of each setting at each point, with its success on validation; None: it is missing."""
    runs = [(name, lr, score) for name, row in scores.items() for lr, score in zip(GRID["lr"], row, strict=True)]
    jobs = [SweepJob(name, "", 0, ("env=x", f"lr={lr}"), "hash") for name, lr, _ in runs]
    return SimpleNamespace(jobs=jobs, rows=lambda: [row(score) for _, _, score in runs])


def row(score: float | None) -> dict[str, Any]:
    if score is None:
        return {"status": "missing", "curve": []}
    return {"status": "finished", "curve": [Point(1, 10, 10, 1, Outcomes("tasks", (score,)))]}


def test_the_best_point_of_each_setting() -> None:
    assert choices(record({"a": [0.1, 0.5, 0.2], "b": [0.3, 0.1, 0.2]}), GRID) == {"a": ["lr=0.2"], "b": ["lr=0.1"]}


def test_of_equal_points_the_one_that_is_best_for_all() -> None:
    """The first would be the worst point of the grid for a setting that learns nothing at any."""
    found = choices(record({"none": [0.0, 0.0, 0.0], "a": [0.1, 0.4, 0.5], "b": [0.1, 0.4, 0.2]}), GRID)
    assert found == {"none": ["lr=0.2"], "a": ["lr=0.3"], "b": ["lr=0.2"]}


def test_a_setting_of_which_a_run_is_missing_has_none() -> None:
    assert choices(record({"a": [0.1, None, 0.2], "b": [0.3, 0.1, 0.2]}), GRID) == {"b": ["lr=0.1"]}
    assert choices(record({"a": [None, 0.1, 0.2]}), GRID) == {}
