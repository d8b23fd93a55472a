"""The divergence of the turns that prompts lie in."""

import pytest

from troupe.diagnostics.states import divergence, total_variation
from troupe.evaluation.episodes import EpisodeResult


def result(turns: int, lost: bool = False) -> EpisodeResult:
    messages = [{"turn": turn, "agent": agent} for turn in range(turns) for agent in ("tool", "plan")]
    return EpisodeResult("t", False, turns, messages, lost="world" if lost else None)


def test_by_hand() -> None:
    row = {
        "diagnostics/tool/turn0/prompts": 3.0,
        "diagnostics/tool/turn1/prompts": 1.0,
        "diagnostics/plan/turn0/prompts": 4,
    }
    # In evaluation two prompts of four lie in turn 0, one in each of the next; that of a lost episode counts nothing.
    found = divergence(row, [result(3), result(1), result(9, lost=True)])
    assert found == {"tool/states_tv": pytest.approx(0.25), "plan/states_tv": pytest.approx(0.5)}


def test_without_a_training_iteration_there_is_nothing_to_compare() -> None:
    assert divergence({}, [result(2)]) == {}


def test_total_variation_is_a_distance() -> None:
    assert total_variation({0: 2}, {0: 7}) == 0 and total_variation({0: 1}, {1: 5}) == 1
