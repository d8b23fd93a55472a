"""Metrics and configurations of older runs under the keys of today."""

import pytest
from hydra.utils import get_class

from troupe.runs.older import RENAMED, current_key, with_current_config, with_current_keys


def test_renamed_keys_keep_the_agent() -> None:
    row = {"iteration": 1, "rollout/cut_off": 0.5, "rollout/tool/tokens_a_message": 4.0, "rollout/turns": 2.0}
    row |= {"mismatch/tool/turn2/effective_share": 0.9}
    assert with_current_keys(row) == {
        "iteration": 1,
        "rollout/truncated_ratio": 0.5,
        "rollout/tool/tokens_per_message": 4.0,
        "rollout/turns": 2.0,
        "mismatch/tool/turn2/ess_ratio": 0.9,
    }


def test_keys_of_today_are_not_renamed() -> None:
    for new in RENAMED.values():
        key = new.replace(r"\1", "tool")
        assert current_key(key) == key


@pytest.mark.parametrize(("lookahead", "team"), [(0, "own"), (1, "global")])
def test_a_configuration_without_the_reward_section_has_it(lookahead: int, team: str) -> None:
    older = {"seed": 0, "algorithm": {"credit": {"c": 1}, "sampler": {"k": 4, "lookahead": lookahead}}}
    algorithm = {"credit": {"c": 1}, "sampler": {"k": 4}, "reward": {"team": team}}
    assert with_current_config(older) == {"seed": 0, "algorithm": algorithm}
    assert older["algorithm"] == {"credit": {"c": 1}, "sampler": {"k": 4, "lookahead": lookahead}}


def test_a_run_of_before_multiplied_as_a_cpu_does_at_every_precision() -> None:
    assert with_current_config({"strategy": {"devices": 1}}) == {"strategy": {"devices": 1, "float32_matmul": "high"}}
    highest = {"strategy": {"float32_matmul": "highest"}}
    assert with_current_config(highest) == highest


def test_a_sharded_run_of_before_names_the_class_where_it_is_today() -> None:
    older = {"strategy": {"strategy": {"_target_": "troupe.models.strategies.Fsdp2", "cpu_offload": False}}}
    sharded = with_current_config(older)["strategy"]["strategy"]
    assert sharded == {"_target_": "troupe.models.pools.strategies.Fsdp2", "cpu_offload": False}
    assert get_class(sharded["_target_"])
    own = {"strategy": {"strategy": {"_target_": "mine.Ours"}, "float32_matmul": "high"}}
    assert with_current_config(own) == own


def test_a_configuration_without_the_keys_that_are_gone() -> None:
    update = {"epochs": 1, "alarm_kl_nats": 0.01, "alarm_ess_ratio": 0.8}
    older = {"algorithm": {"update": update}, "diagnostics": {"alarms": {"mismatch_nats": 0.01, "spread": 0.005}}}
    newer = {"algorithm": {"update": {"epochs": 1}}, "diagnostics": {"alarms": {"spread": 0.005}}}
    assert with_current_config(older) == newer == with_current_config(newer)
    assert "alarm_kl_nats" in update


def test_other_configurations_stay() -> None:
    for config in ({}, {"algorithm": {"sampler": {"k": 4}}}, {"algorithm": None}, {"algorithm": {"sampler": "a"}}):
        assert with_current_config(config) is config
