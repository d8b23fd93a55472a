"""The rule: what each regime makes of a world's agents, as a mapping, without Hydra."""

from typing import Any

import pytest

from troupe.errors import ConfigError
from troupe.setup.declarations import Regime, read_world, team_config

SECTION: dict[str, Any] = {
    "agents": ["a", "b", "c"],
    "policies": {"laptop": "small", "others": "${scale}"},
    "solo": {"agent": "alone", "env": {"team": "solo"}},
}


def made(rule: Regime, scale: str = "laptop", **changes: Any) -> dict[str, Any]:
    return team_config("mine", rule, scale, "game", read_world("game", SECTION | changes))


def test_a_policy_per_agent() -> None:
    assert made(Regime("per_agent")) == {
        "defaults": [{f"/policy@policies.{agent}": "small"} for agent in "abc"] + ["_self_"],
        "team": {"a": "a", "b": "b", "c": "c"},
    }


def test_one_policy_for_all() -> None:
    assert made(Regime("shared"), "paper_8b") == {
        "defaults": [{"/policy@policies.shared": "${scale}"}, "_self_"],
        "team": {"a": "shared", "b": "shared", "c": "shared"},
    }


def test_files_laid_over_each_policy() -> None:
    assert made(Regime("shared", over=["lora", "mine"]))["defaults"] == [
        {"/policy@policies.shared": "small"},
        "/policy/lora@policies.shared",
        "/policy/mine@policies.shared",
        "_self_",
    ]


def test_one_agent_alone() -> None:
    assert made(Regime("per_agent", solo=True)) == {
        "defaults": [{"/policy@policies.alone": "small"}, "_self_"],
        "team": {"alone": "alone"},
        "env": {"team": "solo"},
    }


def test_one_agent_alone_at_a_scale() -> None:
    solo = {"agent": "alone", "env": {"team": "solo", "horizon": 4}, "at": {"laptop": {"horizon": 2}}}
    assert made(Regime("per_agent", solo=True), solo=solo)["env"] == {"team": "solo", "horizon": 2}
    assert made(Regime("per_agent", solo=True), "paper_8b", solo=solo)["env"] == {"team": "solo", "horizon": 4}
    with pytest.raises(
        ConfigError, match=r"env=game: _world_\.solo\.at: scale 'latpop' is unknown; did you mean laptop\?"
    ):
        made(Regime("per_agent", solo=True), solo=solo | {"at": {"latpop": {}}})


def test_agents_by_a_rule_of_the_world() -> None:
    """A function names them, from the arguments in the yaml."""
    rule = {"_target_": "troupe.envs.math.ensemble.members", "size": 5}
    assert made(Regime("per_agent"), agents=rule)["team"].keys() == {
        *("tool_1", "tool_2", "reasoner_1", "reasoner_2", "judge")
    }
    with pytest.raises(ConfigError, match=r"env\.size must be odd and at least 3, got 4"):
        read_world("game", SECTION | {"agents": rule | {"size": 4}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent": []}, r"env=game: _world_\.agent is an unknown key; did you mean agents\?"),
        ({"solo": {"env": {}}}, r"env=game: _world_\.solo\.agent is missing"),
        ({"solo": "alone"}, r"env=game: _world_\.solo must hold keys, got 'alone'"),
        ({"agents": ["a", "b.c"]}, r"agent 'b\.c': a name is letters, digits, _ and -"),
        ({"agents": ["a", "b", "a"]}, r"env=game: _world_\.agents names an agent twice: a, b, a"),
        ({"agents": []}, r"env=game: _world_\.agents must be a list of names, got \[\]"),
        ({"agents": "abc"}, r"env=game: _world_\.agents must be a list of names, got 'abc'"),
        ({"policies": "laptop"}, r"env=game: _world_\.policies must hold keys, got 'laptop'"),
    ],
)
def test_what_a_world_cannot_declare(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_world("game", SECTION | changes)


def test_what_a_world_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"scale=paper_8b: env=game does not have this scale\. Scales .*: laptop, big"
    ):
        made(Regime("shared"), "paper_8b", policies={"laptop": "small", "big": "large"})
    rule, world = Regime("shared"), read_world("game", SECTION | {"policies": {"tiny": None, "others": "${scale}"}})
    with pytest.raises(ConfigError, match=r"scale=tiny: env=game .* Scales that it has: laptop, big$"):
        team_config("mine", rule, "tiny", "game", world, ["laptop", "tiny", "big"])
    with pytest.raises(ConfigError, match=r"regime=mine: env=game has no variant with one agent: .*_world_\.solo"):
        made(Regime("per_agent", solo=True), solo=None)
    with pytest.raises(ConfigError, match=r"_regime_\.policies=per_team is unknown"):
        Regime("per_team")  # type: ignore[arg-type]
