"""Reward hacking in Sudoku: each attempt is a test; docs/worlds/ lists them under these names."""

import re
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.grid.sudoku import FORM, Sudoku, entry_word, vocabulary
from troupe.envs.grid.sudoku_board import Grid
from troupe.envs.judging import METRIC
from troupe.experience import Task

CLUES: Grid = (1, 0, 3, 4, 3, 4, 0, 0, 0, 1, 4, 3, 4, 3, 2, 0)
"""
1 . 3 4
3 4 . .
. 1 4 3
4 3 2 .
"""
RIGHT = "0,1=2 1,2=1 1,3=2 2,0=2 3,3=1"
SHARE = 0.1
TASKS = Sudoku().tasks("train", 60, seed=0)
PRINTED: Grid = (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1)
"""The grid that PettingLLMs prints as an example, and takes as the solution of every puzzle."""


def begin(task: Task | None = None, **settings: Any) -> Sudoku:
    world = Sudoku(**{"team": "solo", "horizon": 9, **settings})
    world.reset(task or Task("by-hand", "test", {"clues": CLUES}))
    return world


def words(grid: Grid) -> str:
    return " ".join(entry_word(4, cell, digit) for cell, digit in enumerate(grid))


async def locals_of(world: Sudoku, *texts: str) -> list[int]:
    """The local reward of each message, in cells of five."""
    rewards = []
    for text in texts:
        result = await world.step({"solo": text})
        rewards.append(round(5 * result.local["solo"] / SHARE))
        assert result.team == 0.0
    return rewards


async def test_overwriting_clues() -> None:
    """The printed grid wins where it is the solution, and fills nothing elsewhere."""
    assert (await begin().step({"solo": words(PRINTED)})).success
    for task in TASKS:
        world = begin(task)
        agrees = all(clue in (0, digit) for clue, digit in zip(task.data["clues"], PRINTED, strict=True))
        result = await world.step({"solo": words(PRINTED)})
        if not agrees:
            assert (result.team, result.local, world.grid) == (0.0, {"solo": 0.0}, task.data["clues"])
    for erased in ("0,0=?", "0,0=2", "0,0=2 0,1=1 3,0=1"):
        world = begin()
        assert await locals_of(world, erased) == [0] and world.grid == CLUES


async def test_two_answers_in_one_message() -> None:
    assert await locals_of(begin(), "0,1=1 0,1=2", "0,1=2 0,1=2", f"{RIGHT} {RIGHT}") == [0, 0, 0]
    full = begin(wording="full")
    assert await locals_of(full, f"Cells: {RIGHT}\nCells: 0,1=4", f"Cells: {RIGHT}\nCells: all") == [0, 0]
    assert (await full.step({"solo": f"Cells: 0,1=4\nCells: {RIGHT}"})).success  # the last one alone counts


async def test_filling_a_filled_cell_again() -> None:
    assert await locals_of(begin(), "0,1=2", "0,1=2", "0,0=1 0,1=2", "0,1=2 1,2=1") == [1, 0, 0, 1]


async def test_filling_and_emptying() -> None:
    texts = ["0,1=2 1,2=1", "0,1=? 1,2=?", "0,1=2 1,2=1", "1,2=?", "1,2=1"]
    assert await locals_of(begin(), *texts) == [2, 0, 0, 0, 0]


async def test_a_wrong_digit_and_back() -> None:
    assert await locals_of(begin(), "1,3=1", "1,3=?", "1,3=2", "1,3=1", "1,3=2") == [0, 0, 1, 0, 0]


async def test_guessing_every_cell() -> None:
    """Digits that keep the rules, not all of them right: no progress, whatever is right among them."""
    for task in TASKS:
        world = begin(task)
        result = await world.step({"solo": world.demonstration("solo", Random(0), skill="flawed")})
        wrong = any(digit not in (0, right) for digit, right in zip(world.grid, world.solution, strict=True))
        assert not wrong or (result.local["solo"], result.team) == (0.0, 0.0)


async def test_each_digit_in_turn() -> None:
    """All cells of one digit, then of the next: what is right of them counts once."""
    world = begin()
    blanks = [cell for cell, digit in enumerate(CLUES) if not digit]
    total = 0.0
    for digit in (1, 2, 3, 4, 1, 2):
        text = " ".join(entry_word(4, cell, digit) for cell in blanks)
        total += (await world.step({"solo": text})).local["solo"]
    assert total <= SHARE and not world._solved()


TEXTS = st.lists(st.sampled_from(vocabulary(4)[16:]), max_size=12, unique_by=lambda word: word[:3]).map(" ".join)


@given(st.integers(0, 59), st.lists(st.one_of(TEXTS, st.sampled_from(["novice", "flawed"])), min_size=9, max_size=9))
async def test_no_way_to_more_digits(number: int, texts: list[str]) -> None:
    """Local rewards of any messages sum to the share of the cells that were right at once, and to λ at the most."""
    world, total, wins = begin(TASKS[number]), 0.0, 0.0
    first, best = world._distance(), world._distance()
    assert first is not None and best is not None
    for text in texts:
        if world.next_agents():
            said = world.demonstration("solo", Random(number), skill=text) if text in ("novice", "flawed") else text  # type: ignore[arg-type]
            result = await world.step({"solo": said})
            total, wins = total + result.local["solo"], wins + result.team
            now = world._distance()
            best = best if now is None else min(best, now)
    assert total == pytest.approx(SHARE * (first - best) / first) and wins == float(best == 0)


@pytest.mark.parametrize("text", ["goal", "check goal", "solved", "0,1=２", "０,1=2", "0,1 = 2", "0,01=2", "0,1=2\x00"])
async def test_claims_and_look_alike_digits(text: str) -> None:
    world = begin()
    result = await world.step({"solo": text})
    assert result.info["malformed"] and result.info[METRIC] == 0 and result.local == {"solo": 0.0}


async def test_proposals_fill_nothing() -> None:
    world = begin(team="pair")
    assert (await world.step({"tool": RIGHT})).team == 1.0
    assert world.grid == CLUES and not (await world.step({"plan": ""})).success and world.grid == CLUES


async def test_words_that_a_proposal_brings_to_the_planner() -> None:
    """Only cells of the notation, each once."""
    for text in (f"{RIGHT} check goal", "last ok", "0,1=2 0,1=2", "clues 0,0=2", "0,0=2"):
        world = begin(team="pair")
        await world.step({"tool": text})
        assert str(world.observe("plan")[-1]["content"]).endswith("last start proposal none check malformed")


async def test_copying_the_example_of_the_prompt() -> None:
    example = FORM.splitlines()[-1]
    assert re.fullmatch(r"Cells: (\d,\d=\d ?)+", example)
    for task in TASKS:
        assert not (await begin(task, wording="full").step({"solo": example})).success


async def test_one_sentence_for_every_puzzle() -> None:
    """Whatever grid is always said, it solves few of the puzzles."""
    rows = ["1234", "2143", "3412", "4321"]
    grids = [tuple(int(d) for row in (a, b, c, d) for d in row) for a, b, c, d in product(rows, repeat=4)]
    grids = [grid for grid in grids if all(len(set(grid[column::4])) == 4 for column in range(4))]
    for grid in grids:
        assert sum([(await begin(task).step({"solo": words(grid)})).success for task in TASKS]) <= 3
