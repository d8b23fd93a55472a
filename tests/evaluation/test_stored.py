"""Stored episodes by their place, as messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troupe.evaluation.records import EvaluationError
from troupe.evaluation.stored import locate_episode
from troupe.runs.run import RunReader

Build = Callable[..., Any]


@pytest.fixture
def run(run_dir: Path, tree: Build, episode: Build, lines: Build) -> RunReader:
    """Of tasks with a slash in their names; two trees of one task; and a later evaluation."""
    pictures = [["@."], [".@"]]
    lines(run_dir / "episodes" / "test_00003.jsonl", [episode("a/1", True, pictures=pictures), episode("b", False)])
    lines(run_dir / "episodes" / "train_00002.jsonl", [tree("t", 2), tree("t", 2, said="L", sample=1)])
    later = run_dir / "evaluations" / "swapped"
    (later / "episodes").mkdir(parents=True)
    (later / "summary.json").write_text("{}")
    lines(later / "episodes" / "horizon=2,greedy.jsonl", [episode("c", True)])
    return RunReader(run_dir, tolerant=True)


def test_an_evaluated_episode(run: RunReader) -> None:
    stored = locate_episode(run, "test_00003/a/1")
    assert (stored.place, stored.split, stored.iteration, stored.success, stored.turns) == (
        "test_00003/a/1",
        "test",
        3,
        True,
        1,
    )
    assert [(m.turn, m.agent, m.said, m.picture) for m in stored.messages] == [
        (0, "tool", "R", "@."),
        (0, "plan", "R", ""),
    ]
    assert stored.messages[0].answer["saw"] == "walls" and stored.messages[0].answer["team"] == 1.0
    assert stored.end == ".@"
    assert locate_episode(run, "test_00003/1").task_id == "b"  # by its number
    assert locate_episode(run, "swapped/horizon=2,greedy/c").name == "swapped/horizon=2,greedy"


def test_the_path_of_a_tree_that_went_on(run: RunReader) -> None:
    stored = locate_episode(run, "train_00002/t")
    assert [(m.agent, m.said, m.candidates, m.chosen, m.node) for m in stored.messages] == [
        ("tool", "R D", ("R", "R D"), 1, 0),
        ("plan", "yes", ("yes", "no"), 0, 1),
    ]
    assert (stored.split, stored.iteration, stored.success, stored.turns) == ("train", 2, True, 1)
    assert stored.messages[0].picture == "#.\n@$"
    assert locate_episode(run, "train_00002/t", sample=1).messages[0].said == "L D"


def test_a_tree_is_followed_through_a_node(run_dir: Path, tree: Build, lines: Build) -> None:
    """Two joint actions go on from the root; node 2 is behind the first candidate."""
    both = tree("t", 0)
    both["nodes"].append(both["nodes"][1] | {"id": 2, "parent": 0})
    outcome = {"success": False, "turns": 1, "team_return": 0.0}
    both["edges"] += [{"members": {"tool": [0, 0]}, "child": 2}, {"members": {"plan": [2, 1]}, "outcome": outcome}]
    lines(run_dir / "episodes" / "train_00000.jsonl", [both])
    run = RunReader(run_dir, tolerant=True)
    assert [m.said for m in locate_episode(run, "train_00000/t").messages] == ["R D", "yes"]
    through = locate_episode(run, "train_00000/t", node=2)
    assert [m.said for m in through.messages] == ["R", "no"] and not through.success
    assert [m.said for m in locate_episode(run, "train_00000/t", node=0).messages] == ["R D", "yes"]
    with pytest.raises(EvaluationError, match=r"node=3: train_00000/t has 3 nodes, from 0"):
        locate_episode(run, "train_00000/t", node=3)


def test_rewards_that_are_not_the_world_s_are_not_compared(run_dir: Path, tree: Build, lines: Build) -> None:
    """``team`` of a candidate is the world's answer with some samplers alone; of a candidate in several joint actions
    everything is a mean."""
    lines(run_dir / "episodes" / "train_00000.jsonl", [tree("t", 0)])
    for sampler, keys in (
        ("{_target_: a.TreeSampler, lookahead: 0}", {"local", "team"}),  # of a run before algorithm.reward
        ("{_target_: a.TreeSampler, lookahead: 1}", {"local"}),
        ("{_target_: a.TreeSampler}", {"local", "team"}),
        ("{_target_: a.TreeSampler}, reward: {team: own}", {"local", "team"}),
        ("{_target_: a.TreeSampler}, reward: {team: both}", {"local"}),
        ("{_target_: a.ReplaySampler}", {"local"}),
    ):
        (run_dir / "config.yaml").write_text(f"algorithm: {{sampler: {sampler}}}")
        message = locate_episode(RunReader(run_dir, tolerant=True), "train_00000/t").messages[0]
        assert set(message.answer) == keys and set(message.rewards) == {"local", "team"}  # shown all the same
    several = tree("t", 0)
    several["edges"].append({"members": {"tool": [0, 1], "plan": [1, 1]}, "team": 7.0})
    several["edges"][0]["team"] = 3.0
    lines(run_dir / "episodes" / "train_00000.jsonl", [several])
    first = locate_episode(RunReader(run_dir, tolerant=True), "train_00000/t").messages[0]
    assert first.answer == {} and first.rewards["team"] == 3.0  # that of the joint action


WRONG = {
    "test_0003/a": r"no file of .* has that name; did you mean test_00003\? Known: train_00002, test_00000, ",
    "test_00003/x": r"test_00003 has no task 'x'; it has a/1, b$",
    "test_00003": r"test_00003 has no task ''",
    "test_00003/2": r"test_00003 has no task '2'",
}


@pytest.mark.parametrize("place", WRONG)
def test_what_is_not_there_is_named(run: RunReader, place: str) -> None:
    with pytest.raises(EvaluationError, match=WRONG[place]):
        locate_episode(run, place)


def test_what_cannot_be_replayed_is_named(run: RunReader, episode: Build, lines: Build) -> None:
    with pytest.raises(EvaluationError, match=r"sample=2: train_00002/t has 2 episodes, from 0"):
        locate_episode(run, "train_00002/t", sample=2)
    with pytest.raises(EvaluationError, match="node=0: test_00003/b is an evaluated episode, which has no nodes"):
        locate_episode(run, "test_00003/b", node=0)
    lost = episode("a", False, lost="world", failure="no answer") | {"messages": []}
    lines(run.path / "episodes" / "test_00003.jsonl", [lost])
    with pytest.raises(EvaluationError, match="test_00003/a was lost: no answer"):
        locate_episode(RunReader(run.path, tolerant=True), "test_00003/a")
    (run.path / "episodes" / "test_00003.jsonl").write_text('{"task_id"')
    with pytest.raises(EvaluationError, match=r"it has none \(episodes/test_00003.jsonl, line 1, is not a whole"):
        locate_episode(RunReader(run.path, tolerant=True), "test_00003/a")


def test_of_a_file_cut_in_the_middle_the_whole_episodes_are_there(
    run_dir: Path, episode: Build, tree: Build, lines: Build
) -> None:
    episodes = run_dir / "episodes"
    for name, records in (
        ("test_00003", [episode("a", True), episode("b", True)]),
        ("train_00002", [tree("a", 2)] * 2),
    ):
        lines(episodes / f"{name}.jsonl", records)
        text = (episodes / f"{name}.jsonl").read_text()
        (episodes / f"{name}.jsonl").write_text(text[:-20])
    run = RunReader(run_dir, tolerant=True)
    assert locate_episode(run, "test_00003/a").success and locate_episode(run, "train_00002/a").messages
    with pytest.raises(EvaluationError, match=r"test_00003 has no task 'b'; it has a \(.*line 2, is not a whole JSON"):
        locate_episode(run, "test_00003/b")
    with pytest.raises(EvaluationError, match=r"train_00002 has no task 'b'; it has a \(.*line 2, is not a whole JSON"):
        locate_episode(run, "train_00002/b")
    for file in episodes.iterdir():
        file.unlink()
    with pytest.raises(EvaluationError, match=r"no file of .* has that name; it has none"):
        locate_episode(RunReader(run_dir, tolerant=True), "test_00003/a")
