"""Tool agents that write programs, which run in the real sandbox."""

from collections.abc import Callable
from typing import Any

import pytest

from troupe.envs.base import WorldFailure
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.two_roles import TwoRoleWorld
from troupe.envs.testing import check_world
from troupe.sandbox import Job, Limits, LocalSandbox, Result, Verdict

LANE = """
    ?.?..
    S...G
    .....
    .....
    .....
"""
ROOM = """
    ######
    #....#
    #@$.o#
    #....#
    #....#
    ######
"""

ROUTE = """
import json, sys
from collections import deque

view = json.load(sys.stdin)
size, walls, start = view["size"], {tuple(c) for c in view["walls"]}, tuple(view["at"])
goal = tuple(view["goals"][0])
queue, came_from = deque([start]), {start: ""}
while queue:
    row, column = here = queue.popleft()
    for move, (r, c) in {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}.items():
        there = row + r, column + c
        if min(there) >= 0 and max(there) < size and there not in walls and there not in came_from:
            came_from[there] = came_from[here] + move
            queue.append(there)
print("reasoning")
print("Moves:", " ".join(came_from[goal]))
"""

Make = Callable[..., Any]


def block(source: str) -> str:
    return f"I search for the way.\n```python\n{source}\n```\nThat is all."


def prompt_of(world: TwoRoleWorld, agent: str) -> str:
    return "\n".join(message["content"] for message in world.observe(agent))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PlanPath, Sokoban])
async def test_worlds_of_programs_keep_the_contract(kind: Make, sandbox: LocalSandbox) -> None:
    await check_world(kind(wording="full", tool_message="program", sandbox=sandbox), local=(0.0, 0.1))


async def test_a_program_finds_the_way(sandbox: LocalSandbox) -> None:
    world = PlanPath(tool_message="program", wording="full", sandbox=sandbox, unmapped=0.0)
    for task in world.tasks("validation", 5, 0):
        world.reset(task)
        result = await world.step({"tool": block(ROUTE)})
        assert result.team == 1.0 and result.info["malformed"] is False
        assert "it reaches the goal" in prompt_of(world, "plan")


async def test_a_failing_sandbox_is_nobodys_fault(plan_path: Make, in_full: Make) -> None:
    class Gone:
        async def run(self, job: Job, limits: Limits | None = None) -> Result:
            return Result(Verdict.INFRA, detail="the worker died")

    world = in_full(plan_path, LANE, sandbox=Gone())
    with pytest.raises(WorldFailure, match="the sandbox failed: the worker died"):
        await world.step({"tool": block(ROUTE)})


async def test_opening_tells_what_protects_the_trainer(plan_path: Make, in_full: Make) -> None:
    world = in_full(plan_path, LANE)
    assert (await world.open())["unsafe"] is False
    await world.close()
    with pytest.raises(RuntimeError, match="closed"):
        await world.step({"tool": block(ROUTE)})


@pytest.mark.parametrize("kind", [PlanPath, Sokoban])
def test_programs_need_words_and_a_sandbox(kind: Make) -> None:
    with pytest.raises(ValueError, match=r"env\.tool_message=program.*env\.wording=full"):
        kind(tool_message="program")
    with pytest.raises(ValueError, match=r"env\.tool_message=program.*env\.sandbox="):
        kind(tool_message="program", wording="full")
    kind(tool_message="program", team="solo")  # nobody writes one
