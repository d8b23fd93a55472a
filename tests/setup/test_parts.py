"""What a run is warned of before it begins."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from omegaconf import DictConfig, OmegaConf

from troupe.envs.workflow import WorkflowWorld
from troupe.setup.parts import parts_of, warn


@pytest.mark.parametrize("lockstep", ["true", "false"])
def test_programs_in_lockstep_are_warned_of(
    composed: Callable[..., DictConfig], caplog: pytest.LogCaptureFixture, lockstep: str
) -> None:
    parts = parts_of(OmegaConf.to_container(composed(f"loop.lockstep={lockstep}"), resolve=True), None)  # type: ignore[arg-type]
    programs = WorkflowWorld(workflow=lambda *_: 0.0, tasks=lambda *_: [], agents=parts.world.agents)
    with caplog.at_level(logging.WARNING):
        warn(parts)
        assert not caplog.records
        warn(replace(parts, world=programs))
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == (lockstep == "true") and all("give loop.lockstep=false" in each for each in warnings)
