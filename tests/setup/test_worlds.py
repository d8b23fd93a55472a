"""Any world can be given a memory by `env.history`, in training and in evaluation."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.history import WithHistory
from troupe.errors import ConfigError
from troupe.setup.parts import parts_of
from troupe.setup.worlds import build_world

NODE = {"_target_": "troupe.envs.grid.plan_path.PlanPath", "horizon": 3}


class Historian(PlanPath):
    def __init__(self, *, history: int = 0) -> None:
        super().__init__()


@pytest.mark.parametrize(("history", "turns"), [(True, 3), (2, 2), (1, 1)])
def test_a_memory(history: Any, turns: int) -> None:
    world = build_world("env", {**NODE, "history": history})
    assert isinstance(world, WithHistory) and world.turns == turns and isinstance(world.world, PlanPath)


@pytest.mark.parametrize("node", [NODE, {**NODE, "history": False}, {**NODE, "history": None}])
def test_no_memory(node: dict[str, Any]) -> None:
    assert type(build_world("env", node)) is PlanPath


@pytest.mark.parametrize("history", [0, -2, "always", [1]])
def test_what_is_no_memory(history: Any) -> None:
    with pytest.raises(ConfigError, match=r"env\.history must be true, false, or a number of turns"):
        build_world("env", {**NODE, "history": history})


def test_a_world_that_has_the_key_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\._target_=.*Historian has an argument 'history'"):
        build_world("env", {"_target_": f"{__name__}.Historian", "history": False})


@pytest.mark.parametrize("words", [["regime=specialized"], ["regime=single"], ["env=mixed", "algorithm=grpo"]])
def test_the_key_is_any_worlds(composed: Any, words: list[str]) -> None:
    config = composed(*words, "env.history=2")
    parts = parts_of(OmegaConf.to_container(config, resolve=True), OmegaConf.to_yaml(config))
    assert isinstance(parts.world, WithHistory) and parts.world.turns == 2
    assert type(parts_of(OmegaConf.to_container(composed(*words), resolve=True), None).world) is not WithHistory
