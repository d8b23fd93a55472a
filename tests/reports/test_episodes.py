"""Which episodes are shown, and how."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troupe.reports.episodes import LONGEST, agents, choose, first_and_last, plain
from troupe.runs.episodes import EpisodeFile, episode_files

Build = Callable[..., Any]


@pytest.fixture
def evaluation(episode: Build, lines: Build, tmp_path: Path) -> Build:
    """``evaluation(name, task=success, ...)``: the file of one evaluation."""

    def build(name: str, **successes: bool) -> EpisodeFile:
        (tmp_path / "episodes").mkdir(exist_ok=True)
        file = tmp_path / "episodes" / f"{name}.jsonl"
        lines(file, [episode(task, success) for task, success in successes.items()])
        return EpisodeFile(file)

    return build


@pytest.mark.parametrize(
    ("names", "first", "last"),
    [
        (["test_00000", "validation_00002", "test_00003", "test_best"], "test_00000", "test_00003"),
        (["test_00000", "validation_00002", "validation_00010", "test_best"], "test_00000", "validation_00010"),
        (["validation_00002"], "validation_00002", None),
        ([], None, None),
    ],
)
def test_the_first_and_the_last_evaluation(
    evaluation: Build, tmp_path: Path, names: list[str], first: str | None, last: str | None
) -> None:
    for name in names:
        evaluation(name, a=True)
    pair = first_and_last(episode_files(tmp_path).values())
    assert tuple(file and file.name for file in pair) == (first, last)


def test_every_kind_is_shown(evaluation: Build) -> None:
    many = {f"k{index}": True for index in range(50)}
    first = evaluation("test_00000", **many, a=False, b=False, c=True)
    last = evaluation("test_00009", **many, a=True, b=False, c=False)
    tasks = choose(first, last, count=5)
    assert [(task.task_id, task.kind) for task in tasks] == [
        ("a", "newly_solved"),
        ("c", "newly_failed"),
        ("k0", "solved_twice"),
        ("k1", "solved_twice"),
        ("b", "failed_twice"),
    ]


def test_tasks_played_once(evaluation: Build) -> None:
    first, last = evaluation("test_00000", a=False, b=True), evaluation("validation_00002", x=True, y=False)
    tasks = choose(first, last)
    assert {(task.task_id, task.kind) for task in tasks} == {
        ("a", "failed"),
        ("b", "solved"),
        ("x", "solved"),
        ("y", "failed"),
    }
    assert all((task.first is None) == (task.task_id in "xy") for task in tasks)
    assert choose(None, None) == []


def test_an_episode_turn_by_turn(episode: Build, evaluation: Build, lines: Build) -> None:
    drawn = episode("a", True, pictures=[["@ ."], [" @."]])
    drawn["messages"] += [drawn["messages"][0] | {"turn": 1, "said": "", "malformed": False, "moves": 3}]
    file = evaluation("test_00000")
    lines(file.path, [drawn])
    (task,) = choose(file, None)
    assert task.first is not None
    one, two = task.first.turns
    assert (one.number, one.picture, two.number, two.picture) == (1, ["@ ."], 2, [" @."])
    assert task.first.end == [" @."]
    assert [(message.agent, message.rewards, message.flags) for message in one.messages] == [
        (agent, [("outcome", 1.0), ("local", 0.1)], ["blocked"]) for agent in ("tool", "plan")
    ]
    assert agents([task]) == ["tool", "plan"]


def test_control_characters_are_seen_and_length_is_bounded() -> None:
    assert plain("a\x00b\x1b[2J\n\t") == "a␀b␛[2J\n\t"
    assert plain("a\x9b2J") == "a\ufffd2J"
    assert plain("x" * LONGEST) == "x" * LONGEST
    assert plain("x" * (LONGEST + 1200)) == "x" * LONGEST + "\n… 1,200 more characters are in the file"


def test_of_a_drawing_its_characters_are_shown(run_dir: Path, episode: Build, lines: Build) -> None:
    drawing = {"svg": "<svg/>", "text": "█●\n○█"}
    lines(run_dir / "episodes" / "test_00000.jsonl", [episode("a", True, pictures=[drawing, drawing])])
    (task,) = choose(episode_files(run_dir)["test_00000"], None)
    assert task.first is not None and task.first.turns[0].picture == task.first.end == ["█●", "○█"]
