"""A trained team beside its base: by hand, and from properties of pass@k."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.evaluation.against_base import Fitted, against_base, curve
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


def test_a_fit_by_hand() -> None:
    """Beta(1, 1): pass@k is 1 - 1 / (k + 1), which is 0.9 at k = 9; its counts of 4 samples are uniform on 0 to 4."""
    wins = {str(n): [True] * n + [False] * (4 - n) for n in range(5)}
    fitted = Fitted.to(wins)
    assert (fitted.a, fitted.b) == pytest.approx((1, 1), rel=1e-3)
    assert Fitted(1, 1).pass_at(4) == pytest.approx(4 / 5)
    assert Fitted(1, 1).overtakes(0.9) == pytest.approx(9)
    assert Fitted(1, 1).overtakes(0.4) == 1  # a single attempt is ahead
    assert Fitted(1, 1).overtakes(1.0) == float("inf")


def test_where_tasks_are_alike_the_fit_is_one_probability() -> None:
    fitted = Fitted.to({str(task): [True] + [False] * 9 for task in range(20)})
    assert fitted.pass_at(10) == pytest.approx(1 - 0.9**10, rel=1e-3)


def test_above_256_attempts_says_nothing_of_more() -> None:
    """One task of two is hardly ever solved by the base, in none of its samples, and always by the trained team."""
    base = {str(task): [task % 4 == 0] + [False] * 255 for task in range(40)}
    found = against_base(base, {task: [True, True, True, False] for task in base})
    assert found.verdict == "above" and 256 < found.overtaken_at < 10_000
