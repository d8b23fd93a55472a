"""Teams of run directories and experiments, and the conditions of an evaluation."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from troupe.errors import ConfigError
from troupe.evaluation.assignment import LocalPolicy, RemotePolicy
from troupe.evaluation.request import EvalRequest
from troupe.runs.run import RunReader
from troupe.setup.evaluation import ServedTeam, TeamSource, build_conditions, other_teams, trained_team
from troupe.setup.trust import Trust

SAMPLING = {way: {"temperature": 0.7, "max_tokens": 40} for way in ("train", "eval")}
REQUEST: dict[str, Any] = {
    "checkpoint": "best",
    "split": "test",
    "tasks": 2,
    "samples": 3,
    "temperature": ("own", 0),
    "seed": 0,
}


@pytest.fixture
def team(tmp_path: Path) -> TeamSource:
    """A run directory with a best and a last checkpoint, as far as an assignment looks."""
    for name in ("best", "last"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    policies = {policy: {"base": f"base of {policy}", "sampling": SAMPLING} for policy in "tp"}
    env = {"_target_": "troupe.envs.grid.plan_path.PlanPath", "size": 6}
    (tmp_path / "config.yaml").touch()
    config = {"team": {"tool": "t", "plan": "p"}, "policies": policies, "env": env, "engine": {}}
    return TeamSource(config, RunReader(tmp_path))


def local(team: TeamSource, agent: str, checkpoint: Any) -> LocalPolicy:
    policy = team.policy("checkpoint", agent, checkpoint)
    assert isinstance(policy, LocalPolicy)
    return policy


def test_a_policy_at_each_checkpoint(team: TeamSource, tmp_path: Path) -> None:
    best, last, base = (local(team, "tool", checkpoint) for checkpoint in ("best", "last", "base"))
    assert (best.policy, best.weights) == ("t", str(tmp_path / "checkpoints" / "best" / "t"))
    assert last.weights == str(tmp_path / "checkpoints" / "last" / "t")
    assert (base.policy, base.weights) == ("base", "base of t")
    assert all((p.sampling.temperature, p.base_model, p.configured_as) == (0.7, None, "t") for p in (best, last, base))


def test_policies_by_their_tuning(team: TeamSource) -> None:
    policy = team.config["policies"]["t"]
    policy["tuning"] = "lora"
    assert local(team, "tool", "best").base_model == "base of t"
    assert local(team, "tool", "base").base_model is None
    policy["tuning"] = "frozen"
    assert (local(team, "tool", "best").weights, local(team, "tool", "best").policy) == ("base of t", "t")
    policy |= {"tuning": "remote", "remote": {"url": "http://127.0.0.1:9/v1", "model": "m"}}
    policy["sampling"] = SAMPLING
    with pytest.raises(
        ConfigError, match=r"policies\.t\.remote\.url=http://127.*give trust=\[http://127\.0\.0\.1:9/v1\]"
    ):
        team.policy("checkpoint", "tool", "best")
    team = replace(team, trust=Trust(servers=frozenset({"http://127.0.0.1:9"})))
    remote = team.policy("checkpoint", "tool", "best")
    assert isinstance(remote, RemotePolicy) and (remote.policy, remote.server.model) == ("t", "m")
    assert team.policy("checkpoint", "tool", "base") == remote


def test_a_served_team_is_sent_the_key(team: TeamSource, monkeypatch: pytest.MonkeyPatch) -> None:
    served = ServedTeam(team, "http://127.0.0.1:8000/v1", None)
    monkeypatch.delenv("TROUPE_API_KEY", raising=False)
    assert served.policy("agents.tool", "tool", "last").server.key("t") is None
    monkeypatch.setenv("TROUPE_API_KEY", "k")
    assert served.policy("agents.tool", "tool", "last").server.key("t") == "k"


def test_arguments_of_the_chat_template_belong_to_the_policy(team: TeamSource) -> None:
    team.config["policies"]["t"]["chat"] = {"enable_thinking": False}
    for checkpoint in ("best", "base"):
        assert local(team, "tool", checkpoint).chat == {"enable_thinking": False}
        assert local(team, "plan", checkpoint).chat == {}


def test_checkpoints_that_are_not_there(team: TeamSource, tmp_path: Path) -> None:
    assert team.default_checkpoint == "best"
    shutil.rmtree(tmp_path / "checkpoints" / "best")
    with pytest.raises(ConfigError, match=r"checkpoint=best: no checkpoint 'best' in .*; there is last"):
        team.policy("checkpoint", "tool", "best")
    assert team.default_checkpoint == "last" and TeamSource(team.config).default_checkpoint == "base"
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(ConfigError, match=rf"agents\.tool={tmp_path}: no checkpoint 'best' in .*; there are none"):
        team.policy("agents.tool", "tool", "best")
    with pytest.raises(ConfigError, match="checkpoint=last: exp has no run"):
        TeamSource(team.config).policy("checkpoint", "tool", "last")
    with pytest.raises(ConfigError, match=r"checkpoint: .* has no policy for agent 'solo', only for tool, plan"):
        team.policy("checkpoint", "solo", "last")


def test_the_policy_of_a_single_agent_plays_for_any_agent_of_another_team(team: TeamSource) -> None:
    single = replace(team, config=team.config | {"team": {"solo": "t"}})
    assert local(replace(single, guest=True), "plan", "last").policy == "t"
    with pytest.raises(ConfigError, match=r"agents.plan: .* has no policy for agent 'plan', only for solo"):
        single.policy("agents.plan", "plan", "last")
    with pytest.raises(ConfigError, match=r"agents.solo: .* has no policy for agent 'solo', only for tool, plan"):
        replace(team, guest=True).policy("agents.solo", "solo", "last")  # it would have to choose


def test_each_world_at_each_temperature(team: TeamSource) -> None:
    request = EvalRequest(**REQUEST, world={"size": [5, 6]})
    conditions = build_conditions(request, team)
    assert [(condition.name, condition.samples) for condition in conditions] == [
        ("size=5,sampled", 3),
        ("size=5,greedy", 1),  # greedy samples would be equal
        ("size=6,sampled", 3),
        ("size=6,greedy", 1),
    ]
    assert [condition.world_config["size"] for condition in conditions] == [5, 5, 6, 6]
    assert all(len(condition.tasks) == 2 and set(condition.assignment) == {"tool", "plan"} for condition in conditions)
    with pytest.raises(ConfigError, match=r"world\.size|env\.size"):
        build_conditions(EvalRequest(**REQUEST, world={"size": 0}), team)


def test_runs_that_agents_name(team: TeamSource, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("env: {}\n")
    with pytest.raises(ConfigError, match=r"agents\.tool=.*: its config\.yaml has no 'team'"):
        other_teams(EvalRequest(**REQUEST, agents={"tool": f"{tmp_path}@last", "plan": "base"}), team)
    with pytest.raises(ConfigError, match=r"run: .*/nowhere is not a run directory: there is no such folder"):
        trained_team("run", str(tmp_path / "nowhere"), None)
    (tmp_path / "config.yaml").write_text(
        "{env: {}, team: {}, policies: {}, engine: {}, loop: {}, seed: 1, threads: 2}"
    )
    teams = other_teams(EvalRequest(**REQUEST, agents={"tool": f"{tmp_path}@last", "plan": "base"}), team)
    assert list(teams) == ["tool"] and isinstance(other := teams["tool"], TeamSource)
    assert other.config["seed"] == 1 and other.run is not None and other.run.path == tmp_path


@pytest.mark.parametrize(
    ("place", "url", "model"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1", "t"),
        ("https://host/v1@other", "https://host/v1", "other"),
    ],
)
def test_servers_that_agents_name(team: TeamSource, place: str, url: str, model: str) -> None:
    request = EvalRequest(**REQUEST, agents={"tool": place})
    (condition, _) = build_conditions(request, team)
    source = condition.assignment["tool"]
    assert isinstance(source, RemotePolicy) and isinstance(condition.assignment["plan"], LocalPolicy)
    assert (source.policy, source.server.url, source.server.model) == ("t", url, model)
    assert source.sampling.temperature == 0.7


def test_a_server_that_cannot_be_used_is_refused_by_its_key(team: TeamSource) -> None:
    def refused(place: str, message: str) -> None:
        request = EvalRequest(**REQUEST, agents={"tool": place})
        with pytest.raises(ConfigError, match=message):
            build_conditions(request, team)

    refused("http://user:word@host/v1", r"agents\.tool\.url holds a user or a password|agents\.tool: .*key_env")
    team.config["policies"]["t"]["sampling"] = {"eval": {"temperature": 0.7, "max_tokens": 40, "top_k": 5}}
    refused("http://host/v1", r"agents\.tool=http://host/v1: a server takes no top_k")
