"""Which agent acts with which policy, and which assignments are refused."""

from dataclasses import replace
from typing import Any

import pytest

from troupe.errors import ConfigError
from troupe.evaluation.assignment import SILENCE, AgentSource, LocalPolicy, RemotePolicy, assign
from troupe.evaluation.episodes import EchoActor
from troupe.evaluation.request import EvalRequest
from troupe.experience import Sampling
from troupe.rollout.engines.remote.settings import RemoteSettings

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


class Team:
    """A team whose policies lie at CHECKPOINT/POLICY."""

    def __init__(self, **policies: str) -> None:
        self.policies = policies

    def policy(self, key: str, agent: str, checkpoint: str) -> LocalPolicy:
        name = self.policies[agent]
        return LocalPolicy(key, "base" if checkpoint == "base" else name, f"{checkpoint}/{name}", Sampling())


TEAM = Team(tool="t", plan="p")


class Served:
    """A team behind a server."""

    def policy(self, key: str, agent: str, checkpoint: str) -> RemotePolicy:
        return RemotePolicy("p", RemoteSettings(url="http://x", model="p"), Sampling())


def weights(source: AgentSource) -> str:
    assert isinstance(source, LocalPolicy)
    return source.weights


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, ("best/t", "best/p")),
        ({"checkpoint": "last"}, ("last/t", "last/p")),
        ({"checkpoint": "base"}, ("base/t", "base/p")),
        ({"swap": True}, ("best/p", "best/t")),
        ({"swap": {"tool": "plan", "plan": "tool"}}, ("best/p", "best/t")),
        ({"agents": {"tool": "base"}}, ("base/t", "best/p")),
    ],
    ids=str,
)
def test_agents_act_with_the_policies_that_the_keys_say(keys: dict[str, Any], expected: tuple[str, str]) -> None:
    assignment = assign(EvalRequest(**GOOD | keys), PAIR, TEAM, {})
    assert (weights(assignment["tool"]), weights(assignment["plan"])) == expected


def test_every_policy_is_sampled_as_the_request_says() -> None:
    request = EvalRequest(**GOOD, sampling={"max_tokens": 7, "top_k": 3}, silence=("tool",))
    assignment = assign(request, PAIR, TEAM, {})
    assert isinstance(plan := assignment["plan"], LocalPolicy) and assignment["tool"] == replace(
        SILENCE, sampling=Sampling(max_tokens=7, top_k=3)
    )
    own = assign(EvalRequest(**GOOD), PAIR, TEAM, {})["plan"]
    assert isinstance(own, LocalPolicy) and plan == replace(own, sampling=replace(own.sampling, max_tokens=7, top_k=3))
    with pytest.raises(ConfigError, match=r"sampling\.top_k=3: the server of agent 'plan' takes no top_k"):
        request = EvalRequest(**GOOD, agents={"plan": "http://x"}, sampling={"top_k": 3})
        assign(request, PAIR, TEAM, {"plan": Served()})


def test_silent_and_echoing_agents() -> None:
    assignment = assign(EvalRequest(**GOOD, silence=("tool",), echo={"plan": "tool"}), PAIR, TEAM, {})
    assert assignment["tool"] == SILENCE
    assert assignment["plan"] == EchoActor("tool")


@pytest.mark.parametrize(
    ("checkpoint", "place", "expected"),
    [
        ("last", "other", "last/s"),
        ("base", "other", "best/s"),
        ("best", "other@last", "last/s"),
        ("best", "other@base", "base/s"),
    ],
)
def test_a_policy_of_another_run(checkpoint: str, place: str, expected: str) -> None:
    request = EvalRequest(**GOOD | {"checkpoint": checkpoint, "agents": {"tool": place}})
    source = assign(request, PAIR, TEAM, {"tool": Team(tool="s", plan="s")})["tool"]
    assert weights(source) == expected
    assert isinstance(source, LocalPolicy) and source.key == "agents.tool"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"silence": ("tol",)}, "silence=tol: the world has no agent 'tol'; did you mean tool"),
        ({"echo": {"plan": "tol"}}, r"echo\.plan=tol: the world has no agent 'tol'"),
        ({"echo": {"pln": "tool"}}, r"echo\.pln: the world has no agent 'pln'"),
        ({"echo": {"tool": "plan"}}, r"echo\.tool=plan: 'plan' does not act before 'tool'"),
        ({"echo": {"plan": "plan"}}, r"echo\.plan=plan: 'plan' does not act before"),
        ({"agents": {"toll": "base"}}, r"agents\.toll: the world has no agent 'toll'"),
        ({"agents": {"plan": "other@bst"}}, r"agents\.plan: checkpoint 'bst' is unknown; did you mean best"),
        (
            {"agents": {"plan": "base"}, "silence": ("plan",)},
            "silence and agents both decide the messages of",
        ),
        ({"swap": True, "silence": ("plan",)}, "swap and silence both assign policies"),
        ({"swap": {"tool": "plan"}}, "swap=.* is no permutation"),
        ({"swap": {"tool": "pla", "plan": "tool"}}, "swap: the world has no agent 'pla'; did you mean plan"),
        ({"swap": True, "checkpoint": "base"}, "swap changes nothing: all agents act with policy 'base'"),
    ],
    ids=str,
)
def test_a_wrong_assignment_is_refused_by_its_key(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assign(EvalRequest(**GOOD | keys), PAIR, TEAM, {"plan": TEAM})


def test_three_agents_need_a_named_permutation() -> None:
    team, agents = Team(a="x", b="y", c="z"), ("a", "b", "c")
    with pytest.raises(ConfigError, match="swap=true exchanges two agents, the world has a, b, c"):
        assign(EvalRequest(**GOOD, swap=True), agents, team, {})
    assignment = assign(EvalRequest(**GOOD, swap={"a": "b", "b": "c", "c": "a"}), agents, team, {})
    assert [weights(assignment[agent]) for agent in agents] == ["best/y", "best/z", "best/x"]
