"""Baselines and scales: values worked out by hand, and what a constant or a permutation changes."""

import logging
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.baselines import Baseline, compared, whiten
from troupe.algorithms.credit.grpo import Grpo
from troupe.experience import Candidate, Completion

BASELINES: list[Baseline] = ["mean", "leave_one_out", "max", "none"]
SHIFT_FREE: list[Baseline] = ["mean", "leave_one_out", "max"]
values = st.lists(st.integers(0, 8).map(lambda n: n / 8), min_size=2, max_size=8)

# v = 1, 2.5, 0, 4: mean 1.875, max 4.  Means of the others: 6.5/3, 5/3, 7.5/3, 3.5/3.
BY_HAND = {
    "mean": [-0.875, 0.625, -1.875, 2.125],
    "leave_one_out": [1 - 6.5 / 3, 2.5 - 5 / 3, 0 - 7.5 / 3, 4 - 3.5 / 3],
    "max": [-3.0, -1.5, -4.0, 0.0],
    "none": [1.0, 2.5, 0.0, 4.0],
}


@pytest.mark.parametrize("baseline", BASELINES)
def test_by_hand(baseline: Baseline) -> None:
    assert compared([1, 2.5, 0, 4], baseline, False, 0) == pytest.approx(BY_HAND[baseline], abs=1e-12)


def test_divided_by_the_std() -> None:
    # Squared deviations .765625 + .390625 + 3.515625 + 4.515625 = 9.1875; / 3 = 3.0625; std 1.75.
    assert compared([1, 2.5, 0, 4], "mean", True, 0.25) == pytest.approx([a / 2 for a in BY_HAND["mean"]], abs=1e-12)
    assert compared([1, 2.5, 0, 4], "max", True, 0.25) == pytest.approx([a / 2 for a in BY_HAND["max"]], abs=1e-12)


def test_the_four_differ_and_a_std_cancels_one_difference(caplog: pytest.LogCaptureFixture) -> None:
    found = [tuple(compared([1, 2.5, 0, 4], baseline, False, 0)) for baseline in BASELINES]
    assert len(set(found)) == 4
    with caplog.at_level(logging.WARNING):
        Grpo(baseline="leave_one_out", normalise=False)
        Grpo(baseline="max")
        assert not caplog.records
        Grpo(baseline="leave_one_out")
    assert "K / (K - 1) times those of baseline=mean" in caplog.text
    scaled = [a * 4 / 3 for a in compared([1, 2.5, 0, 4], "mean", True, 0.1)]
    assert compared([1, 2.5, 0, 4], "leave_one_out", True, 0.1) == pytest.approx(scaled, abs=1e-12)


@given(values, st.randoms(use_true_random=False), st.sampled_from(BASELINES))
def test_permuting_candidates_permutes_advantages(rewards: list[float], random: Random, baseline: Baseline) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)
    straight = compared(rewards, baseline, False, 0)
    shuffled = compared([rewards[i] for i in order], baseline, False, 0)
    assert shuffled == pytest.approx([straight[i] for i in order], abs=1e-12)


@given(values, st.integers(-16, 16).map(lambda n: n / 8), st.sampled_from(SHIFT_FREE), st.booleans())
def test_a_constant_on_every_value_changes_nothing(
    rewards: list[float], constant: float, baseline: Baseline, normalise: bool
) -> None:
    straight = compared(rewards, baseline, normalise, 0.1)
    assert compared([r + constant for r in rewards], baseline, normalise, 0.1) == pytest.approx(straight, abs=1e-12)


@pytest.mark.parametrize("baseline", SHIFT_FREE)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_equal_values_and_a_candidate_left_alone_teach_nothing(baseline: Baseline, count: int) -> None:
    assert compared([0.1] * count, baseline, False, 0) == [0.0] * count


def test_reinforce_keeps_its_values() -> None:
    assert compared([0.5, 0.5], "none", False, 0) == [0.5, 0.5]
    AtGrpo(baseline="none", normalise=False).check(1, "tree")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"baseline": "median"}, r"algorithm\.credit\.baseline=median is unknown.*leave_one_out"),
        ({"baseline": "none"}, r"algorithm\.credit\.normalise=true with baseline=none"),
        ({"normalise": "batch"}, r"algorithm\.credit\.normalise must be true or false, got 'batch'"),
    ],
)
def test_settings_without_sense_are_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Grpo(**settings)  # type: ignore[arg-type]


def candidates(*advantages: float) -> list[Candidate]:
    spoken = Completion((1,), (-0.5,), "U", "stop", "policy", 0)
    return [Candidate(spoken, 0.0, 0.0, 0.0, advantage=advantage) for advantage in advantages]


def test_whitening_counts_tokens() -> None:
    # Tokens: 2 two times, -1 six times: mean (4 - 6) / 8 = -0.25; squares 2 * 5.0625 + 6 * 0.5625 = 13.5; / 8 = 1.6875
    # std 1.299038105677; 2.25 / std = 1.732050807569; -0.75 / std = -0.577350269190
    given_ = candidates(2, -1)
    whiten(given_, [2, 6], 0.0)
    assert [c.advantage for c in given_] == pytest.approx([1.732050807569, -0.577350269190], abs=1e-12)


def test_whitening_equal_advantages_gives_zero() -> None:
    given_ = candidates(0.1, 0.1, 0.1)
    whiten(given_, [1, 5, 2], 0.0)
    assert [c.advantage for c in given_] == [0.0, 0.0, 0.0]
