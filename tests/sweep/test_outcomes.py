"""Results by task, from episodes and back from files."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.evaluation.statistics import DIFFERENCE
from troupe.runs.run import RunReader
from troupe.sweep.outcomes import (
    Outcomes,
    Point,
    area,
    combined,
    common_budgets,
    completions_to,
    curve_of,
    difference_over_seeds,
    mean_over_seeds,
    value_at,
    with_readings,
)


def test_lost_episodes_are_no_failures() -> None:
    results = {"a": True, "b": False, "c": False, "d": False}
    episodes = [{"task_id": task, "success": success} for task, success in results.items()]
    episodes[2]["lost"] = "world"
    outcomes = Outcomes.of(episodes)
    assert outcomes.values == (1.0, 0.0, None, 0.0) and outcomes.mean == 1 / 3
    assert Outcomes.unpacked(outcomes.packed()) == outcomes


# ---- readings of a learning curve, by hand ---------------------------------------------------------------------------


def point(iteration: int, *values: float | None) -> Point:
    """An iteration has 100 completions, 1000 tokens and 2 steps."""
    return Point(iteration, 100.0 * iteration, 1000.0 * iteration, 2.0 * iteration, Outcomes("x", values))


CURVE = [point(0, 0, 0), point(2, 1, 0), point(4, 1, 1)]


def test_between_two_validations_it_is_linear() -> None:
    assert value_at(CURVE, "completions", 100) == Outcomes("x", (0.5, 0.0))
    assert value_at(CURVE, "tokens", 3000) == Outcomes("x", (1.0, 0.5))
    assert value_at(CURVE, "steps", 8) == Outcomes("x", (1.0, 1.0))
    assert value_at(CURVE, "steps", 8.1) is None
    assert value_at(CURVE[1:], "steps", 1) is None


def test_area_by_hand() -> None:
    # Task 1: 0 to 1 over 200, then 1: (100 + 200) / 400.  Task 2: 0 over 200, then 0 to 1: 100 / 400.
    whole, half, none = (area(CURVE, "completions", budget) for budget in (400, 300, 500))
    assert whole is not None and whole.values == pytest.approx((0.75, 0.25))
    # To 300: (100 + 100) / 300, and 0 to 1/2 over 100: 25 / 300.
    assert half is not None and half.values == pytest.approx((2 / 3, 1 / 12))
    assert none is None and area(CURVE[1:], "completions", 300) is None


def test_completions_to_a_threshold() -> None:
    assert completions_to(CURVE, 0.25) == pytest.approx(100)  # means 0, 1/2, 1
    assert completions_to(CURVE, 0.75) == pytest.approx(300)
    assert completions_to(CURVE, 0.0) == 0
    assert completions_to(CURVE[:2], 0.75) is None


def test_common_budgets_are_those_of_the_shortest_run() -> None:
    assert common_budgets([CURVE, CURVE[:2]]) == {"completions": 200, "tokens": 2000, "steps": 4}
    assert common_budgets([CURVE, []]) == common_budgets([]) == {}


def test_the_curve_of_a_run(disk: Any, tmp_path: Path) -> None:
    path = disk.run(tmp_path / "run", disk.config(), disk.scores(1, 5, 6))
    disk.curve(path, {0: 0.1, 2: 0.4, 4: 0.5}, completions=100)
    curve = curve_of(RunReader(path))
    assert [(each.iteration, each.completions, each.tokens, each.steps) for each in curve] == [
        (0, 0, 0, 0),
        (2, 200, 2000, 4),
        (4, 400, 4000, 8),
    ]
    assert [each.outcomes.mean for each in curve] == pytest.approx([0.1, 0.4, 0.5])


def test_steps_of_critics_are_none_of_a_policy_s(disk: Any, tmp_path: Path) -> None:
    path = disk.run(tmp_path / "run", disk.config(), disk.scores(1, 5, 6))
    disk.curve(path, {0: 0.1, 2: 0.4}, completions=100)
    lines = (path / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) | {"critic/team/optimizer_steps": 32.0} for line in lines]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [each.steps for each in curve_of(RunReader(path))] == [0, 4]


def test_runs_are_read_where_the_shortest_ends() -> None:
    def row(seed: int, curve: list[Point], status: str = "finished") -> dict[str, Any]:
        return {"variant": "", "seed": seed, "status": status, "curve": curve, "outcomes": {}}

    (one, other, missing), budgets = with_readings([row(0, CURVE), row(1, CURVE[:2]), row(2, [], "missing")], 0.75)
    assert budgets == {"": {"completions": 200, "tokens": 2000, "steps": 4}}
    assert (one["at_steps"], one["to_threshold"]) == (0.5, 300)
    assert (other["at_completions"], other["area"], other["to_threshold"]) == (0.5, 0.25, None)
    assert one["outcomes"]["at_tokens"] == Outcomes("x", (1.0, 0.0))
    assert "at_steps" not in missing


@given(st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1, max_size=20))
@settings(max_examples=30)
def test_packed_outcomes_are_unpacked(values: list[float | None]) -> None:
    outcomes = Outcomes("abc", tuple(values))
    assert Outcomes.unpacked(outcomes.packed()) == outcomes


def test_damaged_outcomes_are_refused() -> None:
    with pytest.raises(ValueError, match="9 outcomes of 4 tasks"):
        Outcomes.unpacked({"tasks": "a", "count": 4, "bits": "1ff"})


def test_differences_are_paired_by_task_where_the_tasks_are_the_same() -> None:
    same = [(Outcomes(f"{seed}", (1.0, 0.0, 1.0)), Outcomes(f"{seed}", (1.0, 0.0, 0.0))) for seed in range(3)]
    paired = difference_over_seeds(same)
    assert paired == mean_over_seeds([combined([(1, a), (-1, b)]) for a, b in same], DIFFERENCE)
    other = difference_over_seeds([(a, Outcomes(f"other {a.tasks}", b.values)) for a, b in same])
    assert paired and other and paired.mean == pytest.approx(other.mean) == pytest.approx(1 / 3)
    assert paired.standard_error < other.standard_error
