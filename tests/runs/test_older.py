"""Configurations of older runs under the keys of today."""

import pytest

from troupe.runs.older import with_current_config


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


def test_a_configuration_without_the_keys_that_are_gone() -> None:
    update = {"epochs": 1, "alarm_kl_nats": 0.01, "alarm_ess_ratio": 0.8}
    older = {"algorithm": {"update": update}}
    newer = {"algorithm": {"update": {"epochs": 1}}}
    assert with_current_config(older) == newer == with_current_config(newer)
    assert "alarm_kl_nats" in update


def test_other_configurations_stay() -> None:
    for config in ({}, {"algorithm": {"sampler": {"k": 4}}}, {"algorithm": None}, {"algorithm": {"sampler": "a"}}):
        assert with_current_config(config) == config
