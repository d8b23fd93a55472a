"""Verdicts follow from differences by seed, computed by hand."""

from typing import Any

import pytest

from troupe.sweep.rows import METRICS, TableRow
from troupe.sweep.verdicts import Claim, claims_of, judge

CLAIM: dict[str, Any] = {"claim": "a beats b", "setting": "a", "over": "b", "at_least": 0.05, "low_above": 0.0}


def row(setting: str, seed: int, after: float | None, stale: str = "", **metrics: float) -> TableRow:
    known = dict.fromkeys(METRICS) | {"after": after} | metrics
    return {"setting": setting, "variant": "", "seed": seed, "stale": stale, **known}


def rows(differences: list[float | None]) -> list[TableRow]:
    result = [row("b", seed, 0.5) for seed in range(len(differences))]
    # In another order of seeds: pairs are made by seed, not by place.
    return result + [row("a", s, None if d is None else 0.5 + d) for s, d in reversed(list(enumerate(differences)))]


@pytest.mark.parametrize(
    ("differences", "low_above", "verdict", "why"),
    [
        ([0.10, 0.11, 0.12], 0.0, "met", ""),
        ([0.05, 0.05], 0.0, "met", ""),  # exactly the threshold
        ([0.00, 0.30, 0.10], 0.0, "undecided", "the interval reaches too low"),
        ([0.00, 0.30, 0.10], None, "met", ""),
        ([0.01, 0.02, 0.01], 0.0, "not met", "the whole interval is too small"),
        ([-0.3, 0.1, 0.2], 0.0, "undecided", "the mean is too small, the interval is not"),
        ([0.01, 0.02, 0.10], None, "not met", "the mean difference is too small"),
        ([0.10, None, 0.12], 0.0, "undecided", "2 of 3 pairs finished"),
        ([None, None, None], 0.0, "undecided", "0 of 3 pairs finished"),
        ([0.2], 0.0, "undecided", "one seed gives no interval"),
        ([0.2], None, "met", ""),
    ],
)
def test_verdicts(differences: list[float | None], low_above: float | None, verdict: str, why: str) -> None:
    (judged,) = judge([Claim(**CLAIM | {"low_above": low_above})], rows(differences))
    assert (judged["verdict"], judged["why"]) == (verdict, why)


def test_the_figures_behind_a_verdict() -> None:
    (judged,) = judge([Claim(**CLAIM)], rows([0.10, 0.11, 0.12]))
    assert (judged["n"], judged["difference"]) == (3, pytest.approx(0.11))
    # Standard deviation 0.01, t(0.975, 2) = 4.302653.
    assert judged["difference_high"] == pytest.approx(0.11 + 0.02484138)
    assert judged["threshold"] == "at least 0.05, lower end above 0"


def test_two_metrics_of_the_same_runs() -> None:
    claim = Claim("swapping hurts", "a", 0.05, over_metric="swapped", low_above=0.0)
    (judged,) = judge([claim], [row("a", 0, 0.9, swapped=0.7), row("a", 1, 0.8, swapped=0.62)])
    assert judged["difference"] == pytest.approx(0.19)


def test_a_setting_without_a_seed_of_the_other_is_undecided() -> None:
    (judged,) = judge([Claim(**CLAIM)], [row("a", 0, 0.9), row("a", 1, 0.9), row("b", 0, 0.5), row("b", 2, 0.5)])
    assert judged["why"] == "1 of 2 pairs finished"


def test_stale_runs_are_said() -> None:
    (judged,) = judge(
        [Claim(**CLAIM)], [row("a", 0, 0.9), row("a", 1, 0.9, "code"), row("b", 0, 0.5), row("b", 1, 0.5)]
    )
    assert (judged["verdict"], judged["why"]) == ("met", "1 of 2 pairs hold a stale run")


def test_variants_are_judged_apart() -> None:
    small = [r | {"variant": "env=small"} for r in rows([0.2, 0.2])]
    large = [r | {"variant": "env=large"} for r in rows([0.0, 0.0])]
    assert [judged["verdict"] for judged in judge([Claim(**CLAIM)], small + large)] == ["met", "not met"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"metric": "sucess"}, "metric=sucess is unknown"),
        ({"over": "c"}, "setting 'c' is unknown. Known: a, b"),
        ({"over": "a"}, "compares a with itself"),
        ({"atleast": 1}, "atleast"),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=rf"verdicts\[0\]: .*{named}"):
        claims_of([CLAIM | changes], ["a", "b"])
