"""What may be asked, and who then stands behind each agent."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.errors import ConfigError
from troupe.evaluation.episodes import Echo, Silence
from troupe.evaluation.request import Questions
from troupe.runs.run import Run
from troupe.setup.actors import digest, identity
from troupe.setup.agent_assignment import Part, TeamSource, Weights, line_up
from troupe.setup.conditions import worlds

PAIR = ("tool", "plan")
SAMPLING = {"eval": {"temperature": 1.0, "max_tokens": 40}}
GOOD: dict[str, Any] = {
    "checkpoint": "best",
    "split": "test",
    "tasks": 1,
    "samples": 1,
    "temperature": ("own", 0),
    "seed": 0,
}


def run_at(path: Path, team: dict[str, str]) -> TeamSource:
    """A run directory with a best and a last checkpoint, as far as a line-up looks."""
    for name in ("best", "last"):
        (path / "checkpoints" / name).mkdir(parents=True)
        (path / "checkpoints" / name / "state.json").touch()
    policies = {policy: {"base": f"base of {policy}", "sampling": SAMPLING} for policy in team.values()}
    (path / "config.yaml").write_text(yaml.safe_dump({"team": team, "policies": policies}, sort_keys=False))
    run = Run(path)
    return TeamSource(run.config, run)


@pytest.fixture
def pair(tmp_path: Path) -> TeamSource:
    return run_at(tmp_path / "run", {"tool": "t", "plan": "p"})


def behind(part: Part) -> str:
    """The weights' place, relative to its run's directory."""
    assert isinstance(part, Weights)
    return part.base.partition("checkpoints/")[2] or part.base


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"checkpoint": "bst"}, "checkpoint=bst is unknown; did you mean best"),
        ({"split": "dev"}, "split=dev is unknown"),
        ({"tasks": 0}, "tasks must be a whole number of at least 1, got 0"),
        ({"samples": 0}, "samples must be a whole number of at least 1, got 0"),
        ({"samples": True}, "samples must be a whole number of at least 1, got True"),
        ({"temperature": (0.5, -0.1)}, r"temperature must be own or a number of at least 0, got -0\.1"),
        ({"temperature": (float("nan"),)}, "temperature .* got nan"),
        ({"temperature": ()}, "temperature must name at least one"),
        ({"seed": "x"}, "seed must be a whole number, got 'x'"),
        ({"world": [1]}, "world must hold keys"),
        ({"swap": "yes"}, "swap must be true, false or agents to agents, got 'yes'"),
    ],
)
def test_questions_that_cannot_be_asked(wrong: dict[str, Any], said: str) -> None:
    Questions(**GOOD)
    with pytest.raises(ConfigError, match=said):
        Questions(**GOOD | wrong)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, ("best/t", "best/p")),
        ({"checkpoint": "last"}, ("last/t", "last/p")),
        ({"checkpoint": "base"}, ("base of t", "base of p")),
        ({"swap": True}, ("best/p", "best/t")),
        ({"swap": {"tool": "plan", "plan": "tool"}}, ("best/p", "best/t")),
        ({"agents": {"tool": "base"}}, ("base of t", "best/p")),
    ],
    ids=str,
)
def test_who_speaks_with_what(pair: TeamSource, keys: dict[str, Any], expected: tuple[str, str]) -> None:
    parts = line_up(Questions(**GOOD | keys), pair, {}, PAIR)
    assert (behind(parts["tool"]), behind(parts["plan"])) == expected


def test_what_a_policy_s_chat_template_is_given_goes_with_its_weights(pair: TeamSource) -> None:
    pair.config["policies"]["t"]["chat"] = {"enable_thinking": False}
    for keys in ({}, {"checkpoint": "base"}, {"swap": True}):
        parts = line_up(Questions(**GOOD | keys), pair, {}, PAIR)
        first, other = parts.values() if "swap" not in keys else reversed(parts.values())
        assert isinstance(first, Weights) and isinstance(other, Weights)
        assert (first.chat, first.named, other.chat) == ({"enable_thinking": False}, "t", {})
        digests = dict.fromkeys((first.base, other.base), "the same")
        told = [identity(part, 0, digests) for part in (first, other)]
        assert told[0] == told[1] | {"chat": {"enable_thinking": False}}


def test_stand_ins(pair: TeamSource) -> None:
    parts = line_up(Questions(**GOOD, silence=("tool",), echo={"plan": "tool"}), pair, {}, PAIR)
    assert isinstance(parts["tool"], Silence)
    assert parts["plan"] == Echo("tool")


@pytest.mark.parametrize(
    ("checkpoint", "place", "expected"),
    [
        ("last", "other", "last/s"),
        ("base", "other", "best/s"),
        ("best", "other@last", "last/s"),
        ("best", "other@base", "base of s"),
    ],
)
def test_a_policy_of_another_run(pair: TeamSource, tmp_path: Path, checkpoint: str, place: str, expected: str) -> None:
    other = run_at(tmp_path / "other", {"tool": "s", "plan": "s"})
    asked = Questions(**GOOD | {"checkpoint": checkpoint, "agents": {"tool": place}})
    part = line_up(asked, pair, {"tool": other}, PAIR)["tool"]
    assert behind(part) == expected
    assert isinstance(part, Weights) and part.key == "agents.tool"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"silence": ("tol",)}, "silence=tol: the world has no agent 'tol'; did you mean tool"),
        ({"echo": {"plan": "tol"}}, r"echo\.plan=tol: the world has no agent 'tol'"),
        ({"echo": {"pln": "tool"}}, r"echo\.pln: the world has no agent 'pln'"),
        ({"echo": {"tool": "plan"}}, r"echo\.tool=plan: 'plan' does not speak before 'tool'"),
        ({"echo": {"plan": "plan"}}, r"echo\.plan=plan: 'plan' does not speak before"),
        ({"agents": {"toll": "base"}}, r"agents\.toll: the world has no agent 'toll'"),
        ({"agents": {"plan": "other@bst"}}, r"agents\.plan: checkpoint 'bst' is unknown; did you mean best"),
        ({"agents": {"plan": "base"}, "silence": ("plan",)}, "silence and agents both decide what agent 'plan' says"),
        ({"swap": True, "silence": ("plan",)}, "swap and silence both decide"),
        ({"swap": {"tool": "plan"}}, "swap=.* is no permutation"),
        ({"swap": {"tool": "pla", "plan": "tool"}}, "swap: the world has no agent 'pla'; did you mean plan"),
        ({"swap": True, "checkpoint": "base"}, "swap changes nothing: policy 'base' speaks for all agents"),
    ],
    ids=str,
)
def test_line_ups_that_cannot_be(pair: TeamSource, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        line_up(Questions(**GOOD | keys), pair, {"plan": pair}, PAIR)


def test_three_agents_need_a_named_permutation(tmp_path: Path) -> None:
    run = run_at(tmp_path / "run", {"a": "x", "b": "y", "c": "z"})
    with pytest.raises(ConfigError, match="swap=true exchanges two agents, the world has a, b, c"):
        line_up(Questions(**GOOD, swap=True), run, {}, ("a", "b", "c"))
    asked = Questions(**GOOD, swap={"a": "b", "b": "c", "c": "a"})
    parts = line_up(asked, run, {}, ("a", "b", "c"))
    assert [behind(parts[agent]) for agent in "abc"] == ["best/y", "best/z", "best/x"]


def test_checkpoints_that_are_not_there(tmp_path: Path) -> None:
    team = {"tool": "t", "plan": "p"}
    run = run_at(tmp_path / "run", team)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "best")
    with pytest.raises(ConfigError, match=r"checkpoint=best: no checkpoint 'best' in .*; there is last"):
        line_up(Questions(**GOOD), run, {}, PAIR)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(ConfigError, match=r"no checkpoint 'best' in .*; there are none"):
        line_up(Questions(**GOOD), run, {}, PAIR)
    with pytest.raises(ConfigError, match="checkpoint=last: exp has no run"):
        line_up(Questions(**GOOD | {"checkpoint": "last"}), TeamSource(run.config), {}, PAIR)
    with pytest.raises(ConfigError, match="run has no policy for agent 'solo', only for tool, plan"):
        line_up(Questions(**GOOD | {"checkpoint": "last"}), run, {}, ("solo",))


def test_worlds_are_every_combination_of_listed_values() -> None:
    node = {"_target_": "x", "size": 6, "horizon": 4, "walls": 0.2}
    found = list(worlds({"size": [6, 8], "horizon": [2, 4]}, node))
    assert [changes for _, changes in found] == [
        {"size": size, "horizon": horizon} for size in (6, 8) for horizon in (2, 4)
    ]
    assert found[2][0] == ["size=8", "horizon=2"]
    assert list(worlds({}, node)) == [([], {})]
    for changes, said in (
        ({"sise": 3}, r"world\.sise is an unknown key\. Known: horizon, size"),
        ({"_target_": "y"}, r"world\._target_"),
        ({"size": []}, r"world\.size=\[\] names no value"),
    ):
        with pytest.raises(ConfigError, match=said):
            list(worlds(changes, node))


def test_weights_are_known_by_content_not_by_place(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(content)
    a, b, c = (digest(str(tmp_path / name)) for name in "abc")
    assert a == b != c
    assert digest("Qwen/Qwen3-1.7B") == "Qwen/Qwen3-1.7B"
