"""When a policy learns, iteration by iteration."""

from typing import Any

import pytest

from troupe.models.learning.settings import Alternation, Schedule, count_turns


def learns(schedule: Schedule, iterations: int = 8) -> str:
    return "".join("x" if schedule.learns(iteration) else "." for iteration in range(iterations))


def test_by_default_a_policy_always_learns() -> None:
    assert learns(Schedule()) == "xxxxxxxx"


def test_frozen_until() -> None:
    assert learns(Schedule(freeze_until=3)) == "...xxxxx"
    assert Schedule(freeze_until=3).ever(4) and not Schedule(freeze_until=3).ever(3)


def test_iterated_best_response() -> None:
    first, second = (Schedule(alternate=Alternation(every=2, turn=turn), turns=2) for turn in (0, 1))
    assert learns(first) == "xx..xx.."
    assert learns(second) == "..xx..xx"
    assert learns(Schedule(freeze_until=5, alternate=Alternation(every=2, turn=0), turns=2)) == ".....x.."
    assert not second.ever(2) and second.ever(3)


def test_the_turns_of_a_team() -> None:
    turn = {name: Alternation(every=3, turn=index) for index, name in enumerate("abc")}
    assert count_turns(turn) == 3
    assert count_turns({}) == 1
    assert count_turns(turn | {"d": Alternation(every=3, turn=1)}) == 3  # two policies learn at once


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([(3, 0), (4, 1)], r"policies\.b\..*every=4: policy 'a' has 3"),
        ([(3, 0), (3, 2)], "no policy has turn 1 of 3"),
    ],
)
def test_turns_that_do_not_fit_together(turns: list[tuple[int, int]], message: str) -> None:
    alternations = {name: Alternation(every=every, turn=turn) for name, (every, turn) in zip("ab", turns, strict=True)}
    with pytest.raises(ValueError, match=message):
        count_turns(alternations)


@pytest.mark.parametrize("wrong", [{"every": 0, "turn": 0}, {"every": 2, "turn": -1}, {"every": True, "turn": 0}])
def test_a_turn_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"alternate\.(every|turn) must be a whole number"):
        Alternation(**wrong)


def test_a_schedule_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"freeze_until must be a whole number of at least 0, got 0\.5"):
        Schedule(freeze_until=0.5)  # type: ignore[arg-type]
