"""Prompts with full wording: views, rules, and the answer in a message."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from troupe.envs.grid.prompts import answer, fenced_program
from troupe.envs.grid.two_roles import TwoRoleWorld

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

Make = Callable[..., Any]


def prompt_of(world: TwoRoleWorld, agent: str) -> str:
    return "\n".join(message["content"] for message in world.observe(agent))


def test_no_agent_sees_more_than_its_view(sokoban: Make, plan_path: Make) -> None:
    world = sokoban(ROOM, wording="full")
    assert "#-$-.#" in prompt_of(world, "tool") and "You are in row" not in prompt_of(world, "tool")
    assert "#@$???" in prompt_of(world, "plan") and "You are in row 2, column 1" in prompt_of(world, "plan")
    world = plan_path(LANE, wording="full", view_radius=2)
    assert "--#--" not in prompt_of(world, "tool") and "@---." in prompt_of(world, "tool")  # not on its map
    assert "#-#??\n@--??" in prompt_of(world, "plan")


@pytest.mark.parametrize("view", ["local", "full"])
async def test_a_turn_in_full_wording(plan_path: Make, view: str) -> None:
    world = plan_path(LANE, wording="full", planner_view=view)
    text = world.demonstration("tool", Random(0))
    assert text.startswith("Moves: R")
    await world.step({"tool": text})
    assert "it reaches the goal and ends at row,column 1,4" in prompt_of(world, "plan")
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
    line = answer(text)
    assert (line if line is None else " ".join(line.split())) == moves


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
    assert fenced_program(text) == program
