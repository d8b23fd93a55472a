"""A trained team beside its base: by hand, and from properties of pass@k."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.evaluation.against_base import against_base, curve
from troupe.evaluation.records import EvaluationError


def test_by_hand() -> None:
    """Task a is solved by the base in 1 of 4 samples, b and c never."""
    base = {"a": [True, False, False, False], "b": [False] * 4, "c": [False] * 4}
    found = against_base(base, {"a": [True, True], "b": [True, False], "c": [False, False]})
    assert {k: value for k, (value, _) in found.base.items()} == pytest.approx({1: 1 / 12, 2: 1 / 6, 4: 1 / 3})
    assert {k: value for k, (value, _) in found.trained.items()} == pytest.approx({1: 1 / 2, 2: 2 / 3})
    assert found.difference == pytest.approx((0 + 0.5 + 0) / 3)
    assert (found.unsolved, found.gained, found.gained_share) == (2, 1, 0.25)
    assert found.verdict == "undecided"  # three tasks
    # Differences 0, 0.5, 0: t = (1/6) / (sqrt(1/12) / sqrt(3)) = 1, and with two degrees of freedom 1 - 1 / sqrt(3).
    assert found.p_value == pytest.approx(1 - 1 / 3**0.5)


@pytest.mark.parametrize(
    ("base", "trained", "verdict"),
    [
        ([False] * 8, [True, False], "above"),
        ([True] + [False] * 7, [True, False], "below"),
        ([True] + [False] * 7, [True, True], "undecided"),
    ],
)
def test_verdicts(base: list[bool], trained: list[bool], verdict: str) -> None:
    tasks = [str(task) for task in range(20)]
    assert against_base(dict.fromkeys(tasks, base), dict.fromkeys(tasks, trained)).verdict == verdict


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=2, max_size=6))
def test_pass_at_k_rises_with_k_and_ends_at_any_of_all(wins: list[list[bool]]) -> None:
    values = [value for value, _ in curve({str(task): row for task, row in enumerate(wins)}).values()]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(sum(map(any, wins)) / len(wins))
    assert values[1] == pytest.approx(sum(1 - comb(5 - sum(row), 2) / 10 for row in wins) / len(wins))


def test_tasks_that_lost_a_sample_are_left_out() -> None:
    base = {"a": [True, False], "b": [False], "c": [False, False]}
    found = against_base(base, {"a": [True], "b": [True], "c": []})
    assert found == against_base({"a": [True, False]}, {"a": [True]})
    with pytest.raises(EvaluationError, match="every task has lost a sample"):
        against_base({"a": [True], "b": [True, True]}, {"a": [True], "b": []})


def test_other_tasks_are_refused() -> None:
    with pytest.raises(EvaluationError, match="number 1 is a in the base, but b in the trained team"):
        against_base({"a": [True]}, {"b": [True]})
