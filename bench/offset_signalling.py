"""Signalling whose receiver earns a constant more for every message: rewards of two roles on different scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from troupe.envs.base import StepResult
from troupe.envs.signalling.world import RECEIVER, Signalling


class OffsetSignalling(Signalling):
    """With ``offset`` for the receiver, in units of 0.2: about the standard deviation of a guess's reward."""

    def __init__(self, *, offset: float = 0.0, **keys: Any) -> None:
        super().__init__(**keys)
        self.offset = 0.2 * offset

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        result = await super().step(actions)
        local = {agent: value + self.offset * (agent == RECEIVER) for agent, value in result.local.items()}
        return StepResult(local, result.team, result.done, result.success, result.info)
