"""The explorer's data: whole, bounded, and what is left out of it."""

import base64
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import asdict
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.evaluation.episodes import EpisodeResult
from troupe.evaluation.summary import summarise
from troupe.reports.explorer import Explorer, episode_tree, explorer
from troupe.reports.report import write_report
from troupe.runs.run import RunReader
from troupe.runs.trees import tree_problem

Build = Callable[..., Any]


def unpack(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text), -15), parse_constant=pytest.fail)  # as a browser does


def trees_of(data: Explorer) -> list[dict[str, Any]]:
    return [tree for chunk in data.chunks for tree in unpack(chunk)]


def explored(run_dir: Path, **settings: Any) -> Explorer:
    return explorer(RunReader(run_dir, tolerant=True), **settings)


def test_all_episodes_of_a_run(run_dir: Path, tree: Build, lines: Build) -> None:
    lines(run_dir / "episodes" / "train_00002.jsonl", [tree("t", 2)])
    data = explored(run_dir)
    index = unpack(data.index)
    assert index["sources"] == ["training trees", "validation episodes", "test episodes"]
    assert (data.count, data.left_out, data.problems, data.agents) == (13, 0, [], ["tool", "plan"])
    assert len(index["rows"]) == len(trees_of(data)) == 13
    # source, iteration, task, sample, success, return, turns, tokens, advantage, watched, by agent, failures, place
    assert index["rows"][0] == [0, 2, 0, 0, 1.0, 1.0, 1, 2, 0.5, 0, {"0": [1.0, 1], "1": [1.0, 1]}, [], 0, 0]
    assert index["tasks"] == ["t", *"abcd"]
    for row in index["rows"]:
        assert unpack(data.chunks[row[-2]])[row[-1]]["task_id"] == index["tasks"][row[2]]


def test_failures_by_kind(run_dir: Path, episode: Build, lines: Build) -> None:
    """A message that was wrong in form, or none and the episode failed."""

    def flagged(success: bool, **info: float) -> dict[str, Any]:
        played: dict[str, Any] = episode("a", success)
        return played | {"messages": [message | {"blocked": 0.0} | info for message in played["messages"]]}

    lost = {"lost": True, "failure": "sandbox: no answer in time"}
    rows = [
        flagged(True),
        flagged(False),
        flagged(True, blocked=1.0),
        flagged(False, empty_or_malformed=1.0),
    ]
    lines(run_dir / "episodes" / "test_00000.jsonl", [*rows, flagged(False) | lost])
    index = unpack(explorer(RunReader(run_dir)).index)
    source = index["sources"].index("test episodes")
    kinds = [[index["kinds"][kind] for kind in row[11]] for row in index["rows"] if row[:2] == [source, 0]]
    assert kinds == [[], ["wrong"], ["blocked"], ["malformed"], ["timeout"]]


def test_an_evaluated_episode_is_a_chain(episode: Build) -> None:
    played = episode("a", False, pictures=[["@."], [".@"]], tokens=7)
    played["messages"].append(played["messages"][0] | {"turn": 1, "team": 0.5})
    tree = episode_tree(played)
    assert [(node["agent"], node["turn"], node["picture"]) for node in tree["nodes"]] == [
        ("tool", 0, 0),
        ("plan", 0, 0),
        ("tool", 1, 1),
    ]
    assert [edge.get("child") for edge in tree["edges"]] == [1, 2, None]
    assert tree["edges"][-1]["outcome"] == {"success": False, "turns": 1, "team_return": 1.5}
    assert tree["nodes"][-1]["candidates"][0]["next"] == {"done": True, "success": False, "picture": 1}
    assert tree["tokens"] == 7
    whole = [node | {"candidates": []} for node in tree["nodes"]]
    place = {"iteration": 0, "split": "test", "sample": 0, "watched": False, "env_steps": 2}
    assert "edge 0" in tree_problem(tree | place | {"nodes": whole})


def test_an_agents_reward_is_that_of_the_metrics(run_dir: Path, episode: Build, lines: Build) -> None:
    """The team's and its own, in evaluated episodes as in training trees."""
    result = EpisodeResult("a", True, 1, episode("a", True)["messages"])
    lines(run_dir / "episodes" / "test_00003.jsonl", [asdict(result)])
    own = unpack(explored(run_dir).index)["rows"][-1][10]
    assert [reward for reward, _ in own.values()] == [summarise([result])[f"{a}/reward"] for a in ("tool", "plan")]


def test_agents_that_acted_at_once_are_one_step(episode: Build) -> None:
    """By the number of the step; else one answers the other."""
    played = episode("a", True, env_steps=1)
    played["messages"] = [message | {"step": 0} for message in played["messages"]]
    tree = episode_tree(played)
    (edge,) = tree["edges"]
    assert edge["members"] == {"tool": [0, 0], "plan": [1, 0]} and edge["outcome"]["success"]
    assert [node["depth"] for node in tree["nodes"]] == [0, 0]
    assert [node["candidates"][0]["next"]["done"] for node in tree["nodes"]] == [True, True]


def test_an_agents_length_is_in_tokens(run_dir: Path, episode: Build, lines: Build) -> None:
    """Also of an evaluated episode; of an older one it is not known."""
    played = episode("a", True, tokens=7)
    counted = played | {"messages": [message | {"tokens": n + 3} for n, message in enumerate(played["messages"])]}
    lines(run_dir / "episodes" / "test_00003.jsonl", [played, counted])
    rows = unpack(explored(run_dir).index)["rows"][-2:]
    assert [row[7] for row in rows] == [7, 7]
    assert [[length for _, length in row[10].values()] for row in rows] == [[None, None], [3, 4]]


def test_a_lost_episode_says_so(episode: Build) -> None:
    lost = episode("a", False, lost="world", failure="no answer") | {"messages": [], "turns": 0}
    assert episode_tree(lost)["problem"] == "no answer"


def test_control_characters_are_seen(run_dir: Path, tree: Build, lines: Build) -> None:
    lines(run_dir / "episodes" / "train_00000.jsonl", [tree("a\x00", 0, said="\x1b[2J\ud800")])
    (kept, *_) = trees_of(explored(run_dir))
    candidate = kept["nodes"][0]["candidates"][0]
    assert (kept["task_id"], candidate["text"], candidate["tokens"]) == ("a␀", "␛[2J\ufffd", ["␛[2J\ufffd"])


def test_what_cannot_be_shown_is_named(run_dir: Path, tree: Build, lines: Build) -> None:
    """A cut line, another version, an evaluation whose summary is damaged: the rest is shown."""
    file = run_dir / "episodes" / "train_00000.jsonl"
    file.write_text(json.dumps(tree("a", 0)) + "\n" + json.dumps(tree("b", 0) | {"tree_format": 2}) + "\n" + "{")
    (run_dir / "episodes" / "test_00003.jsonl").write_text("{}\n")
    (run_dir / "evaluations" / "later").mkdir(parents=True)
    (run_dir / "evaluations" / "later" / "summary.json").write_text("{")
    data = explored(run_dir)
    assert [problem.split(",")[0] for problem in data.problems] == [
        "episodes/train_00000.jsonl",
        "episodes/train_00000.jsonl",
        "episodes/test_00003.jsonl",
    ]
    assert data.count == 9
    page = write_report(run_dir).read_text()
    assert "has tree_format 2, not 1" in page and "It has no condition with a success." in page
    assert "evaluations/later/summary.json is not whole JSON" in page


def page_notices(run_dir: Path) -> str:
    return unescape(write_report(run_dir).read_text()).partition("<main>")[2].partition('<section class="hero">')[0]


def test_a_run_half_there_and_of_another_version(run_dir: Path) -> None:
    """Empty files, an evaluation that was killed, another layout: each is named."""
    (run_dir / "episodes" / "train_00007.jsonl").write_text("")
    (run_dir / "episodes" / "validation_00007.jsonl").write_text("\n")
    (run_dir / "evaluations" / "killed" / "episodes").mkdir(parents=True)
    (run_dir / "versions.json").write_text('{"run_format": 99}')
    page = unescape(write_report(run_dir).read_text())
    for sentence in (
        "episodes/train_00007.jsonl is empty.",
        "episodes/validation_00007.jsonl is empty.",
        "evaluations/killed: summary.json is missing: it goes on, or was killed.",
        "versions.json: the run has layout 99, not 2; what has another form in it is not shown.",
    ):
        assert page.count(sentence) == 1
    (run_dir / "versions.json").write_text('{"troupe": "0.1.0"}')  # of layout 1 everything is shown
    assert "versions.json" not in page_notices(run_dir)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda tree: tree["nodes"][0]["candidates"][0].update(info=[1]), "has info of another type"),
        (lambda tree: tree["nodes"][0]["candidates"][0].update(next=7), "has next of another type"),
        (lambda tree: tree["edges"][-1].update(outcome=5), "the outcome of edge 1 holds no keys"),
    ],
)
def test_a_tree_that_the_page_cannot_draw_is_left_out(
    run_dir: Path, tree: Build, lines: Build, change: Any, named: str
) -> None:
    wrong = tree("wrong", 0)
    change(wrong)
    lines(run_dir / "episodes" / "train_00000.jsonl", [tree("whole", 0), wrong])
    data = explored(run_dir)
    (problem,) = data.problems
    assert "train_00000.jsonl, line 2, is not a tree (" in problem and named in problem
    assert "wrong" not in unpack(data.index)["tasks"]


def test_a_page_is_bounded(run_dir: Path, tree: Build, lines: Build) -> None:
    many = [tree(f"t{n}", 0, said="long " * 300) for n in range(200)]
    lines(run_dir / "episodes" / "train_00000.jsonl", many)
    data = explored(run_dir, most=100)
    assert data.count + data.left_out == 212 and 0 < data.left_out < 212
    assert len(data.chunks) <= 2


def test_later_evaluations_have_a_section(run_dir: Path, episode: Build, lines: Build) -> None:
    folder = run_dir / "evaluations" / "swapped"
    (folder / "episodes").mkdir(parents=True)
    summary = {"conditions": {"swap": {"success": 0.25, "success_ci95": [0.1, 0.5], "turns": 3.5}, "bad": {}}}
    (folder / "summary.json").write_text(json.dumps(summary))
    lines(folder / "episodes" / "sampled.jsonl", [episode("a", True)])
    lines(folder / "episodes" / "horizon_7.jsonl", [episode("a", True)])
    index = unpack(explored(run_dir).index)
    assert index["sources"][-2:] == ["swapped: horizon_7", "swapped: sampled"]
    assert [row[1] for row in index["rows"][-2:]] == [None, None], "a number in a condition's name is no iteration"
    page = write_report(run_dir).read_text()
    assert "evaluations/swapped" in page and "10.0 % to 50.0 %" in page


@pytest.mark.parametrize(
    ("request_keys", "weights", "iteration", "said"),
    [
        ({"checkpoint": "last", "swap": True}, "last weights", None, "the two agents with each other"),
        (
            {"checkpoint": "best", "swap": {"tool": "plan"}},
            "best on validation",
            None,
            "tool with the policy of plan",
        ),
        ({"checkpoint": "base", "silence": ["plan"]}, "before training", 0, "plan silent"),
        (
            {"checkpoint": "last", "agents": {"tool": "runs/x@last", "plan": "base"}},
            "last weights",
            None,
            "tool from runs/x@last plan untrained",
        ),
        (
            {"checkpoint": "last", "echo": {"plan": "tool"}},
            "last weights",
            None,
            "plan with the last message of tool",
        ),
        ({"checkpoint": [], "agents": 5, "silence": {}, "echo": None}, "weights not recorded", None, "not recorded"),
        (5, "weights not recorded", None, "team, weights not recorded"),
        (None, "weights not recorded", None, "team, weights not recorded"),
    ],
)
def test_a_later_evaluation_says_whose_weights_were_played(
    run_dir: Path, episode: Build, lines: Build, request_keys: Any, weights: str, iteration: int | None, said: str
) -> None:
    folder = run_dir / "evaluations" / "later"
    (folder / "episodes").mkdir(parents=True)
    (folder / "summary.json").write_text("{}")
    if request_keys is not None:
        (folder / "config.yaml").write_text(
            yaml.safe_dump({"checkpoint": None, "request": request_keys}, sort_keys=False)
        )
    lines(folder / "episodes" / "sampled.jsonl", [episode("a", True)])
    index = unpack(explored(run_dir).index)
    assert index["weights"] == [None, None, None, weights] and index["rows"][-1][1] == iteration
    *own, others = index["others"]
    assert (
        own == ["", "", ""]
        and bool(others) == ("not recorded" not in weights)
        and others.startswith(said[:4] if others else "")
    )
    page = unescape(write_report(run_dir).read_text())
    (row,) = re.findall(r'<tr><th scope="row">(.*)</th>', page.partition('<section class="card later">')[2])
    words = " ".join(re.sub("<[^>]+>", " ", row).split())
    assert weights in words and said in words
    assert ("<h2>Cross-play" in page) == ("the others: " in words)


@pytest.mark.parametrize("pictures", [5, "x", {"a": 1}, True])
def test_pictures_that_are_no_list(run_dir: Path, episode: Build, lines: Build, pictures: Any) -> None:
    lines(run_dir / "episodes" / "test_00003.jsonl", [episode("a", True, pictures=pictures)])
    write_report(run_dir)
    assert explored(run_dir).count == 9


def test_an_agent_without_rewards_has_no_mean(run_dir: Path, episode: Build, lines: Build) -> None:
    played = episode("a", True)
    played["messages"] = [message | {"local": None} for message in played["messages"]]
    lines(run_dir / "episodes" / "test_00003.jsonl", [played])
    assert [reward for reward, _ in unpack(explored(run_dir).index)["rows"][-1][10].values()] == [None, None]


def test_nothing_is_explored_where_there_is_nothing(run_dir: Path) -> None:
    for file in (run_dir / "episodes").iterdir():
        file.unlink()
    assert explored(run_dir).count == 0
    assert 'id="explorer"' not in write_report(run_dir).read_text()


@pytest.mark.parametrize("value", [None, float("nan"), "x", []])
def test_rewards_that_are_no_numbers(run_dir: Path, tree: Build, lines: Build, value: Any) -> None:
    strange = tree("a", 0)
    strange["nodes"][0]["candidates"][1] |= {"advantage": value, "local": value, "team": value}
    strange["edges"][1]["outcome"] = {"success": value, "turns": value, "team_return": value}
    lines(run_dir / "episodes" / "train_00000.jsonl", [strange])
    data = explored(run_dir)
    assert unpack(data.index)["rows"][0][5] is None
    assert trees_of(data)[0]["task_id"] == "a"
