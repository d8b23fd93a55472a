"""Which episodes are shown, and how."""

from collections.abc import Callable
from typing import Any

import pytest

from troupe.reports.episodes import LONGEST, agents, choose, plain
from troupe.runs.files import Evaluation

Build = Callable[..., Any]


@pytest.fixture
def evaluation(episode: Build) -> Build:
    """``evaluation(name, **won)``: one with these tasks, solved or not."""

    def build(name: str, **won: bool) -> Evaluation:
        return Evaluation(name, name.partition("_")[0], 0, [episode(task, success) for task, success in won.items()])

    return build


def test_every_kind_is_shown(evaluation: Build) -> None:
    many = {f"k{index}": True for index in range(50)}
    first = evaluation("test_00000", **many, a=False, b=False, c=True)
    last = evaluation("test_00009", **many, a=True, b=False, c=False)
    pairs = choose(first, last, count=5)
    assert [(pair.task_id, pair.kind) for pair in pairs] == [
        ("a", "learnt"),
        ("c", "lost"),
        ("k0", "kept"),
        ("k1", "kept"),
        ("b", "never"),
    ]


def test_tasks_played_once(evaluation: Build) -> None:
    first, last = evaluation("test_00000", a=False, b=True), evaluation("validation_00002", x=True, y=False)
    pairs = choose(first, last)
    assert {(pair.task_id, pair.kind) for pair in pairs} == {
        ("a", "failed"),
        ("b", "solved"),
        ("x", "solved"),
        ("y", "failed"),
    }
    assert all((pair.first is None) == (pair.task_id in "xy") for pair in pairs)
    assert choose(None, None) == []


def test_an_episode_turn_by_turn(episode: Build) -> None:
    told = episode("a", True, pictures=[["@ ."], [" @."]])
    told["messages"] += [told["messages"][0] | {"turn": 1, "said": "", "malformed": False, "moves": 3}]
    (pair,) = choose(Evaluation("test_00000", "test", 0, [told]), None)
    assert pair.first is not None
    one, two = pair.first.turns
    assert (one.number, one.picture, two.number, two.picture) == (1, ["@ ."], 2, [" @."])
    assert pair.first.end == [" @."]
    assert [(line.agent, line.rewards, line.flags) for line in one.lines] == [
        (agent, [("team", 1.0), ("local", 0.1)], ["blocked"]) for agent in ("tool", "plan")
    ]
    assert agents([pair]) == ["tool", "plan"]


def test_control_characters_are_seen_and_length_is_bounded() -> None:
    assert plain("a\x00b\x1b[2J\n\t") == "a␀b␛[2J\n\t"
    assert plain("x" * LONGEST) == "x" * LONGEST
    assert plain("x" * (LONGEST + 1200)) == "x" * LONGEST + "\n… 1,200 more characters are in the file"
