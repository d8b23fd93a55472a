"""Verdicts follow from differences by seed, computed by hand."""

from typing import Any

import pytest

from troupe.sweep.claims import Claim, claim_entries
from troupe.sweep.measures import METRICS
from troupe.sweep.outcomes import Outcomes, Point
from troupe.sweep.rows import TableRow
from troupe.sweep.verdicts import judge

CLAIM: dict[str, Any] = {"claim": "a beats b", "setting": "a", "over": "b", "at_least": 0.05, "low_above": 0.0}


def row(setting: str, seed: int, after: float | None, stale: str = "", **metrics: float) -> TableRow:
    """Each seed has four tasks of its own, all with the same result: the variance is that over seeds alone."""
    known = {"after": after} | metrics
    outcomes = {name: Outcomes(f"of {seed}", (value,) * 4) for name, value in known.items() if value is not None}
    figures = dict.fromkeys(METRICS) | known
    place = {"setting": setting, "variant": "", "seed": seed, "status": "finished", "stale": stale}
    return {**place, "outcomes": outcomes, **figures}


def rows(differences: list[float | None]) -> list[TableRow]:
    result = [row("b", seed, 0.5) for seed in range(len(differences))]
    # In another order of seeds: pairs are made by seed, not by place.
    return result + [row("a", s, None if d is None else 0.5 + d) for s, d in reversed(list(enumerate(differences)))]


@pytest.mark.parametrize(
    ("differences", "low_above", "verdict", "why"),
    [
        ([0.10, 0.11, 0.12], 0.0, "met", ""),
        ([0.049, 0.05, 0.051], 0.0, "met", ""),  # exactly the threshold
        ([0.05, 0.05], 0.0, "undecided", "large, but not surely"),  # two seeds of four tasks that agree
        ([0.0, 0.0, 0.0], 0.0, "undecided", "too small, but not surely"),
        ([0.00, 0.30, 0.10], 0.0, "undecided", "large, but not surely"),
        ([0.00, 0.30, 0.10], None, "met", ""),
        ([0.01, 0.02, 0.01], 0.0, "not met", "surely too small"),
        ([-0.3, 0.1, 0.2], 0.0, "undecided", "too small, but not surely"),
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


def test_a_run_whose_successor_failed_does_not_count() -> None:
    """Its row still has the old figures, which the mean over seeds leaves out."""
    old = rows([0.10, 0.11, 0.12])
    old[0] |= {"status": "failed", "stale": "code"}
    (judged,) = judge([Claim(**CLAIM)], old)
    assert (judged["verdict"], judged["n"]) == ("undecided", 2)
    assert judged["why"] == "2 of 3 pairs finished; 1 of 3 pairs hold a stale run"


def test_the_figures_behind_a_verdict() -> None:
    (judged,) = judge([Claim(**CLAIM)], rows([0.10, 0.11, 0.12]))
    assert (judged["n"], judged["difference"]) == (3, pytest.approx(0.11))
    # Of the draws of three seeds: standard deviation sqrt(2/3) 0.01 / sqrt(3) = 0.0047140; t(0.975, 2) = 4.302653.
    assert judged["difference_high"] == pytest.approx(0.11 + 4.302653 * 0.0047140, rel=0.005)
    assert judged["threshold"] == "at least 0.05, surely above 0"
    # t = 23.33 with two degrees of freedom: p = (1 - 23.33 / sqrt(2 + 23.33^2)) / 2 = 0.000916; the other hypothesis
    # of the claim cannot be true, too.
    assert judged["p_above"] == pytest.approx(0.000916, rel=0.06)


def test_all_tests_of_a_page_are_corrected_together() -> None:
    # t = 4.9 with two degrees of freedom: p = 0.0196, which is below 0.05; among many tests it is not enough.
    differences: list[float | None] = [0.08, 0.12, 0.20]
    table = rows(differences)
    (alone,) = judge([Claim(**CLAIM)], table)
    assert (alone["verdict"], alone["p_above"]) == ("met", pytest.approx(0.02, abs=0.005))
    many = judge([Claim(**CLAIM)] * 3, table)
    assert [one["verdict"] for one in many] == ["undecided"] * 3
    assert many[0]["p_above"] == pytest.approx(3 * alone["p_above"])  # of six hypotheses three can be true
    # Where the thresholds are equal, both hypotheses of a claim may be true: the difference may be just that.
    (one,) = judge([Claim(**CLAIM | {"at_least": 0.0})], table)
    assert one["p_above"] == pytest.approx(2 * alone["p_above"])
    assert (many[0]["difference_low"], many[0]["difference_high"]) == (
        alone["difference_low"],
        alone["difference_high"],
    )


def test_the_budget_of_a_claim_is_that_of_its_two_settings() -> None:
    """Whatever a third setting spends, and whatever its runs lack."""

    def learned(setting: str, seed: int, *successes: tuple[float, ...], steps: int) -> TableRow:
        points = enumerate(Outcomes("own", values) for values in successes)
        curve = [Point(i, 100 * i, 1000 * i, steps * i, outcomes) for i, outcomes in points]
        return row(setting, seed, 0.5) | {"curve": curve}

    start, half, whole = (0.0, 0.0), (0.0, 1.0), (1.0, 1.0)
    table = [learned("a", seed, start, half, whole, steps=4) for seed in (0, 1)]  # to 8 steps, 200 completions
    table += [learned("b", seed, start, start, half, steps=2) for seed in (0, 1)]  # to 4 steps, 200 completions
    table += [learned("short", 0, start, half, steps=1), row("curveless", 0, 0.5) | {"curve": []}]
    claim = CLAIM | {"metric": ["at_steps", "at_completions"]}
    at_steps, at_completions = judge([Claim(**each) for each in claim_entries("verdicts", [claim])], table)
    assert (at_steps["budget"], at_steps["difference"]) == (4, 0.0)  # 0.5 on both sides
    assert (at_completions["budget"], at_completions["difference"]) == (200, 0.5)
    (after,) = judge([Claim(**CLAIM)], table)
    assert after["budget"] is None


def test_without_results_by_task_nothing_is_decided() -> None:
    table = rows([0.1, 0.1, 0.1])
    del table[0]["outcomes"]["after"]
    (judged,) = judge([Claim(**CLAIM)], table)
    assert (judged["verdict"], judged["why"]) == ("undecided", "the results by task are missing in 1 of 3 pairs")


def test_two_metrics_of_the_same_runs() -> None:
    claim = Claim("swapping hurts", "a", 0.05, over_metric="swapped", low_above=0.0)
    (judged,) = judge([claim], [row("a", 0, 0.9, swapped=0.7), row("a", 1, 0.8, swapped=0.62)])
    assert judged["difference"] == pytest.approx(0.19)


def test_a_setting_without_a_seed_of_the_other_is_undecided() -> None:
    (judged,) = judge([Claim(**CLAIM)], [row("a", 0, 0.9), row("a", 1, 0.9), row("b", 0, 0.5), row("b", 2, 0.5)])
    assert judged["why"] == "1 of 2 pairs finished"
    three = rows([0.10, 0.11, 0.12])
    for fewer in (three[1:], three[:-1]):  # of one side two seeds, of the other three
        (judged,) = judge([Claim(**CLAIM)], fewer)
        assert (judged["verdict"], judged["why"]) == ("undecided", "2 of 3 pairs finished")


def test_stale_runs_are_said() -> None:
    (judged,) = judge(
        [Claim(**CLAIM)], [row("a", 0, 0.9), row("a", 1, 0.901, "code"), row("b", 0, 0.5), row("b", 1, 0.5)]
    )
    assert (judged["verdict"], judged["why"]) == ("met", "1 of 2 pairs hold a stale run")


def test_variants_are_judged_apart() -> None:
    small = [r | {"variant": "env=small"} for r in rows([0.2, 0.201])]
    large = [r | {"variant": "env=large"} for r in rows([0.0, 0.001])]
    assert [judged["verdict"] for judged in judge([Claim(**CLAIM)], small + large)] == ["met", "not met"]


def test_parts_are_judged_apart_and_corrected_together() -> None:
    """A claim that a part does not test, and one that is not about it, take none of the tests."""
    table = [r | {"part": part} for part in ("one", "two") for r in rows([0.08, 0.12, 0.20])]
    claim, other = Claim(**CLAIM), Claim(**CLAIM | {"claim": "of one", "parts": ["one"]})
    untested = Claim("of none", not_tested="it is not there")
    judged = judge([claim, other, untested], table, lambda own, part: "too large" if part == "two" else "")
    assert [(one["claim"], one["part"]) for one in judged] == [
        *(("a beats b", "one"), ("a beats b", "two"), ("of one", "one"), ("of none", "one"), ("of none", "two"))
    ]
    assert [one["why"] for one in judged[1:2] + judged[3:]] == ["too large", "it is not there", "it is not there"]
    (alone,) = judge([claim], table[: len(table) // 2])
    assert judged[0]["p_above"] == pytest.approx(2 * alone["p_above"]) and judged[1]["p_above"] is None
