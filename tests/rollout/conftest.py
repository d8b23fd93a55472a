"""A world whose agents act at once."""

from collections.abc import Mapping, Sequence

import pytest

from troupe.envs.base import StepResult, TeamEnv
from troupe.experience import Message, Split, Task


class Duet(TeamEnv):
    """Both agents say a direction at once, twice; the second time they must agree."""

    agents = ("tool", "plan")
    horizon = 2

    def __init__(self) -> None:
        self.turn = 0

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return [Task(f"duet-{i}", split, {}) for i in range(count)]

    def reset(self, task: Task) -> None:
        self.turn = 0

    def next_agents(self) -> tuple[str, ...]:
        return self.agents if self.turn < 2 else ()

    def observe(self, agent: str) -> Sequence[Message]:
        return [{"role": "user", "content": f"{agent} last {'ok' if self.turn else 'start'}"}]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        self.turn += 1
        agreed = self.turn == 2 and actions["tool"] == actions["plan"]
        local = {"tool": 0.2 * self.turn, "plan": 0.0}
        return StepResult(local, float(agreed), self.turn == 2, agreed)

    def fork(self) -> "Duet":
        copy = Duet()
        copy.turn = self.turn
        return copy

    def state_key(self) -> int:
        return self.turn


@pytest.fixture
def duet() -> Duet:
    return Duet()
