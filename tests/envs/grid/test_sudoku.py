"""Sudoku: tasks, prompts, the notation, rewards by hand, programs."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.base import Skill
from troupe.envs.grid.sudoku import Sudoku, vocabulary
from troupe.envs.grid.sudoku_board import Grid, candidates, keeps_the_rules, only_solution, puzzle_digest
from troupe.envs.testing import check_world
from troupe.experience import Split, Task
from troupe.sandbox import LocalSandbox

CLUES: Grid = (1, 0, 3, 4, 3, 4, 0, 0, 0, 1, 4, 3, 4, 3, 2, 0)
"""
1 . 3 4
3 4 . .
. 1 4 3
4 3 2 .
"""
RIGHT = "0,1=2 1,2=1 1,3=2 2,0=2 3,3=1"
GRID = "clues 0,0=1 0,2=3 0,3=4 1,0=3 1,1=4 2,1=1 2,2=4 2,3=3 3,0=4 3,1=3 3,2=2"


def begin(clues: Grid = CLUES, **settings: Any) -> Sudoku:
    """An episode of a puzzle by hand."""
    world = Sudoku(**settings)
    world.reset(Task("by-hand", "test", {"clues": clues}))
    return world


def prompt_of(world: Sudoku, agent: str) -> str:
    return str(world.observe(agent)[-1]["content"])


# ---- tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"min_blanks": 10, "max_blanks": 11}, {"size": 6, "max_blanks": 20}])
def test_tasks_have_one_solution_and_the_blanks_that_were_asked_for(settings: dict[str, Any]) -> None:
    world = Sudoku(**settings)
    ids: dict[Split, set[str]] = {}
    splits: tuple[Split, ...] = ("train", "validation", "test")
    for split in splits:
        tasks = world.tasks(split, 8, seed=3)
        assert tasks == world.tasks(split, 8, seed=3) and len(ids.setdefault(split, {t.task_id for t in tasks})) == 8
        for task in tasks:
            clues = task.data["clues"]
            solution = only_solution(world.size, clues)
            assert solution is not None and world.min_blanks <= clues.count(0) <= world.max_blanks
            assert task.task_id == f"sudoku-{puzzle_digest(world.size, clues, solution)}"
    assert not ids["train"] & ids["test"] and not ids["train"] & ids["validation"]
    assert not ids["validation"] & ids["test"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 5}, r"env\.size=5 has no boxes; sudoku knows 4, 6, 8, 9"),
        ({"min_blanks": 0}, r"env\.min_blanks=0 and env\.max_blanks=8 must be in \[1, 13\] for size 4"),
        ({"min_blanks": 9}, r"env\.min_blanks=9"),
        ({"max_blanks": 14}, r"env\.max_blanks=14"),
        ({"tool_message": "program"}, r"env\.tool_message=program"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sudoku(**settings)


@pytest.mark.parametrize("clues", [(0,) * 16, (1, 1, *CLUES[2:])])
def test_a_puzzle_without_exactly_one_solution_is_refused(clues: Grid) -> None:
    with pytest.raises(ValueError, match="does not have exactly one solution"):
        begin(clues)


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 6, "min_blanks": 10, "max_blanks": 16},
        {"size": 9, "min_blanks": 30, "max_blanks": 36, "wording": "full", "horizon": 1},
    ],
)
async def test_larger_grids_keep_the_contract(settings: dict[str, Any]) -> None:
    await check_world(Sudoku(**settings), splits=["test"], tasks=1, local=(0.0, 0.1), solved=1.0)


# ---- prompts --------------------------------------------------------------------------------------------------------


async def test_a_turn_by_hand() -> None:
    world = begin()
    assert world.observe("tool") == [
        {"role": "system", "content": "tool sudoku"},
        {"role": "user", "content": f"{GRID} filled blank 0,1=? 1,2=? 1,3=? 2,0=? 3,3=? last start"},
    ]
    await world.step({"tool": "0,1=2 1,2=1 1,3=1"})
    assert prompt_of(world, "plan").endswith("last start proposal 0,1=2 1,2=1 1,3=1 check hit")
    await world.step({"plan": "0,1=2 3,3=1"})
    assert prompt_of(world, "tool") == f"{GRID} filled 0,1=2 3,3=1 blank 1,2=? 1,3=? 2,0=? last ok"
    assert world.picture() == ("1234", "34  ", " 143", "4321")
    words = {word for agent in ("tool", "plan") for word in prompt_of(world, agent).split()}
    assert words <= set(vocabulary(4))


async def test_full_wording() -> None:
    world = begin(wording="full")
    assert "1 . 3 4\n3 4 . .\n. 1 4 3\n4 3 2 ." in prompt_of(world, "tool")
    assert (
        "boxes" not in prompt_of(world, "tool") and "box of 2 rows and 2 columns" in world.observe("tool")[0]["content"]
    )
    await world.step({"tool": f"The corner first.\n**Cells:** [{RIGHT.replace(' ', ', ')}]."})
    assert f"proposes: {RIGHT}\nThe proposal was tried out: it fills the grid." in prompt_of(world, "plan")
    await world.step({"plan": "Cells: 0,1=2 0,3=4 1,3=1 1,2=1"})
    assert "your team filled in: 0,1=2 1,3=1." in prompt_of(world, "tool")
    assert "already in the row, column or box; those before it were filled in" in prompt_of(world, "tool")


# ---- the notation, and what a message does --------------------------------------------------------------------------


UNCHANGED = "1 34/34  / 143/432 "


@pytest.mark.parametrize(
    ("text", "picture", "last"),
    [
        ("0,1=2", "1234/34  / 143/432 ", "ok"),
        ("0,0=1 0,1=2 0,2=3", "1234/34  / 143/432 ", "ok"),  # clues said again change nothing
        ("0,1=2 1,3=1", "1234/34 1/ 143/432 ", "ok"),  # keeps the rules, and is wrong
        ("0,1=2 1,2=1 1,3=1 3,3=1", "1234/341 / 143/432 ", "hit"),
        ("0,1=1", UNCHANGED, "hit"),
        ("0,1=?", UNCHANGED, "ok"),
        ("", UNCHANGED, "ok"),
        ("0,0=2 0,1=2", UNCHANGED, "malformed"),  # changes a clue
        ("0,0=? 0,1=2", UNCHANGED, "malformed"),  # empties one
        ("0,1=2 0,1=2", UNCHANGED, "malformed"),
        ("0,1=2 and", UNCHANGED, "malformed"),
        ("0,1=5", UNCHANGED, "malformed"),
        ("0,1=0", UNCHANGED, "malformed"),
        ("4,1=2", UNCHANGED, "malformed"),
        ("0,1=2,1,2=1", UNCHANGED, "malformed"),
    ],
)
async def test_what_a_message_fills(text: str, picture: str, last: str) -> None:
    world = begin(team="solo")
    await world.step({"solo": text})
    assert prompt_of(world, "solo").endswith(f"last {last}")
    assert "/".join(world.picture()) == picture


async def test_own_digits_can_be_replaced_and_emptied() -> None:
    """The cells that a message names are emptied first: a wrong digit is not in the way of those that correct it."""
    world = begin(team="solo", horizon=9)
    await world.step({"solo": "1,3=1"})
    await world.step({"solo": "1,2=1 1,3=2"})
    assert world.picture()[1] == "3412"
    await world.step({"solo": "1,2=?"})
    assert world.picture()[1] == "34 2"


TEXTS = st.lists(st.sampled_from(vocabulary(4)[16:]), max_size=16).map(" ".join)


@given(st.lists(TEXTS, min_size=4, max_size=4))
async def test_the_grid_always_keeps_the_rules_and_its_clues(texts: list[str]) -> None:
    world = begin(team="solo")
    for text in texts:
        if world.next_agents():
            await world.step({"solo": text})
        assert keeps_the_rules(4, world.grid)
        assert all(clue in (0, digit) for clue, digit in zip(CLUES, world.grid, strict=True))


# ---- rewards by hand ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "team", "local"),
    [
        (RIGHT, 1.0, 0.1),
        ("0,1=2", 0.0, 0.02),  # one of five
        ("0,1=2 1,2=1 3,3=1", 0.0, 0.06),
        ("0,1=2 1,2=1 1,3=1", 0.0, 0.04),  # two before the third is blocked
        ("0,1=2 1,3=1", 0.0, 0.0),  # one is wrong
        ("0,1=1 1,2=1", 0.0, 0.0),  # blocked at once
        ("", 0.0, 0.0),
        (f"{RIGHT} 0,0=2", 0.0, 0.0),
        (f"0,0=1 {RIGHT}", 1.0, 0.1),
    ],
)
async def test_the_table_of_rewards(text: str, team: float, local: float) -> None:
    """Of a proposal, of the planner, and of one agent alone, in the same state: the same."""
    pair, solo = begin(), begin(team="solo")
    proposed = await pair.step({"tool": text})
    planned = await pair.step({"plan": text})
    alone = await solo.step({"solo": text})
    for agent, result in (("tool", proposed), ("plan", planned), ("solo", alone)):
        assert (result.team, result.local) == (team, {agent: pytest.approx(local)})
    assert planned.success == alone.success == planned.done == alone.done == (team == 1.0)
    assert not proposed.done


async def test_a_proposal_that_corrects_a_wrong_digit() -> None:
    """Progress of a proposal is in cells that are not right; of the planner, beyond the best of the episode."""
    world = begin()
    await world.step({"tool": ""})
    assert (await world.step({"plan": "0,1=2 1,3=1"})).local["plan"] == 0
    assert (await world.step({"tool": "3,3=1"})).local["tool"] == 0  # the wrong one stays
    assert (await world.step({"plan": "1,3=?"})).local["plan"] == pytest.approx(0.02)  # 0,1 alone is right
    assert (await world.step({"tool": "1,2=1 1,3=2"})).local["tool"] == pytest.approx(0.1 * 2 / 4)
    assert (await world.step({"plan": "1,2=1 1,3=2"})).local["plan"] == pytest.approx(0.04)


async def test_outcome_only() -> None:
    world = begin(team="solo", local_share=0.0)
    assert (await world.step({"solo": "0,1=2"})).local == {"solo": 0.0}


# ---- demonstrators --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("team", ["pair", "solo"])
@pytest.mark.parametrize("wording", ["compact", "full"])
async def test_experts_solve_every_puzzle_in_one_turn(team: Any, wording: Any) -> None:
    world = Sudoku(team=team, wording=wording, horizon=1)
    for task in world.tasks("train", 20, seed=0):
        world.reset(task)
        while acting := world.next_agents():
            result = await world.step({agent: world.demonstration(agent, Random(0)) for agent in acting})
        assert result.success


def test_an_expert_writes_what_follows_first() -> None:
    world = begin((0, 0, 3, 4, 3, 4, 0, 0, 0, 1, 4, 3, 4, 3, 2, 0))
    grid = list(world.grid)
    for word in world.demonstration("tool", Random(0)).split():
        cell, digit = world._entries[word]
        assert candidates(4, grid, cell) == [digit]
        grid[cell] = digit
    assert tuple(grid) == world.solution


async def test_a_planner_repeats_a_proposal_that_fills_the_grid_and_no_other() -> None:
    for proposal, said in ((" ".join(reversed(RIGHT.split())), True), ("1,2=2", False)):
        world = begin()
        await world.step({"tool": proposal})
        assert (world.demonstration("plan", Random(0)) == proposal) == said


@given(st.sampled_from(["novice", "flawed"]), st.integers(0, 99))
async def test_other_demonstrators_write_the_notation(skill: Skill, seed: int) -> None:
    world = begin()
    for agent in ("tool", "plan"):
        result = await world.step({agent: world.demonstration(agent, Random(seed), skill=skill)})
        assert not result.info["malformed"]


# ---- programs -------------------------------------------------------------------------------------------------------

SEARCH = """
import json, sys

view = json.load(sys.stdin)
size, (height, width), grid = view["size"], view["box"], view["grid"]
assert view["clues"] == grid


def free(r, c, d):
    box = [grid[r - r % height + i][c - c % width + j] for i in range(height) for j in range(width)]
    return d not in grid[r] and d not in [row[c] for row in grid] and d not in box


def fill(blanks):
    if not blanks:
        return True
    r, c = blanks[0]
    for d in range(1, size + 1):
        if free(r, c, d):
            grid[r][c] = d
            if fill(blanks[1:]):
                return True
            grid[r][c] = 0
    return False


blanks = [(r, c) for r in range(size) for c in range(size) if not grid[r][c]]
fill(blanks)
print("Cells:", " ".join(f"{r},{c}={grid[r][c]}" for r, c in blanks))
"""


@pytest.mark.parametrize("size", [4, 6])
async def test_a_program_that_solves_puzzles(size: int) -> None:
    world = Sudoku(size=size, wording="full", tool_message="program", sandbox=LocalSandbox(workers=1))
    await world.open()
    try:
        world.reset(world.tasks("test", 1, seed=0)[0])
        assert "Python program" in world.observe("tool")[0]["content"]
        assert json.loads(world._input())["grid"] == [list(row) for row in zip(*[iter(world.grid)] * size, strict=True)]
        result = await world.step({"tool": f"```python\n{SEARCH}\n```"})
        assert (result.team, result.local) == (1.0, {"tool": pytest.approx(0.1)})
        assert (await world.step({"plan": world.demonstration("plan", Random(0))})).success
        world.reset(world.tasks("test", 1, seed=0)[0])
        await world.step({"tool": "```python\nprint(1 / 0)\n```"})
        assert "The tool agent's program failed: crash. There is no proposal." in prompt_of(world, "plan")
    finally:
        await world.close()
