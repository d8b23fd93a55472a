"""Plan-Path whose verifier of proposals is wrong at times: the own outcome of the tool agent's message alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from troupe.envs.base import StepResult
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.two_roles import TOOL


class UncertainPlanPath(PlanPath):
    """Whether a proposal would reach the goal is said rightly with the probability ``agreement``, in [0.5, 1].

    The same proposal on the same board gets the same verdict.  What the planner reads, what the team earns and what an
    episode is worth are as before.
    """

    def __init__(self, *, agreement: float = 1.0, **keys: Any) -> None:
        super().__init__(**keys)
        self.agreement = agreement

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        drawn = Random(repr((self._board(TOOL), self.turn, actions))).random()
        result = await super()._act(actions)
        wrong = TOOL in actions and drawn >= self.agreement
        return replace(result, team=1 - result.team) if wrong else result
