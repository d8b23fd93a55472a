"""Tool agents that write programs, and the grid worlds told in full; programs run in the real sandbox."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from troupe.envs.base import WorldFailure
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.two_roles import TwoRoleWorld
from troupe.envs.grid.wording import answer, fenced
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
queue, came = deque([start]), {start: ""}
while queue:
    row, column = here = queue.popleft()
    for move, (r, c) in {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}.items():
        there = row + r, column + c
        if min(there) >= 0 and max(there) < size and there not in walls and there not in came:
            came[there] = came[here] + move
            queue.append(there)
print("thinking aloud")
print("Moves:", " ".join(came[goal]))
"""

Make = Callable[..., Any]


def block(source: str) -> str:
    return f"I search for the way.\n```python\n{source}\n```\nThat is all."


def seen(world: TwoRoleWorld, agent: str) -> str:
    return "\n".join(message["content"] for message in world.observe(agent))


# ---- programs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PlanPath, Sokoban])
async def test_worlds_of_programs_keep_the_contract(kind: Make, sandbox: LocalSandbox) -> None:
    await check_world(kind(wording="full", tool_message="program", sandbox=sandbox), local=(0.0, 0.1))


async def test_a_program_finds_the_way(sandbox: LocalSandbox) -> None:
    world = PlanPath(tool_message="program", wording="full", sandbox=sandbox, unmapped=0.0)
    for task in world.tasks("validation", 5, 0):
        world.reset(task)
        result = await world.step({"tool": block(ROUTE)})
        assert result.team == 1.0 and result.info["malformed"] is False
        assert "it reaches the goal" in seen(world, "plan")


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


# ---- full wording ---------------------------------------------------------------------------------------------------


def test_nobody_is_told_what_it_does_not_see(sokoban: Make, plan_path: Make) -> None:
    world = sokoban(ROOM, wording="full")
    assert "#-$-.#" in seen(world, "tool") and "You are in row" not in seen(world, "tool")
    assert "#@$???" in seen(world, "plan") and "You are in row 2, column 1" in seen(world, "plan")
    world = plan_path(LANE, wording="full", view_radius=2)
    assert "--#--" not in seen(world, "tool") and "@---." in seen(world, "tool")  # the walls are not on its map
    assert "#-#??\n@--??" in seen(world, "plan")


@pytest.mark.parametrize("view", ["local", "full"])
async def test_a_demonstrated_turn_in_full_words(plan_path: Make, view: str) -> None:
    world = plan_path(LANE, wording="full", planner_view=view)
    text = world.demonstration("tool", Random(0))
    assert text.startswith("Moves: R")
    await world.step({"tool": text})
    assert "it reaches the goal and ends at row,column 1,4" in seen(world, "plan")
    result = await world.step({"plan": "I see no wall on it, so I follow.\n**Moves:** R, R, R, R."})
    assert result.success


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("Moves: R D", "R D"),
        ("moves: [R, D]", "R D"),
        ("Moves: 'R','D'", "R D"),
        ("Moves: U\nno, better:\n> **Moves:** R D**", "R D"),
        ("Moves: box 2,2 R 2,3 D 3,3", "box 2,2 R 2,3 D 3,3"),
        ("Moves:", ""),
        ("my Moves: R", None),
        ("R D", None),
        ("", None),
    ],
)
def test_the_answer_in_a_message(text: str, moves: str | None) -> None:
    found = answer(text)
    assert (found if found is None else " ".join(found.split())) == moves


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na\n```", "a\n"),
        ("```\na\n```\n```py\nb\n```", "b\n"),
        ("```python3\na\n```", "a\n"),
        ("x\n  ```Python\na\n  ```\ny", "a\n"),
        ("```js\na\n```", None),
        ("```js\na\n```\nthen\n```python\nb\n```", "b\n"),
        ("```python\na", None),
        ("a", None),
    ],
)
def test_the_program_in_a_message(text: str, program: str | None) -> None:
    assert fenced(text) == program
