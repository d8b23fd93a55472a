"""Micro-programs: what they are, how tests and expressions are written, what each agent sees, what tests are worth."""

from itertools import permutations, product
from random import Random
from typing import Any, get_args

import pytest

from troupe.envs.base import Skill
from troupe.envs.code import MicroCode
from troupe.envs.code.micro_notation import read_expression, read_tests, written
from troupe.envs.code.micro_programs import (
    HIDDEN,
    INPUTS,
    LARGEST_OUTPUT,
    OPERATORS,
    SMALLEST_OUTPUT,
    Program,
    telling,
    vocabulary,
)
from troupe.envs.code.problem import Check, Ran
from troupe.envs.code.world import CODER, SOLO, TESTER
from troupe.envs.grid.board import split_of
from troupe.experience import Split, Task
from troupe.sandbox import LocalSandbox

PRODUCT_LESS_A = Program(("b", "c", "a"), ("*", "-"), True)
SHAPES = [Program(("a", "b", "c"), ops, left) for ops in product(OPERATORS, repeat=2) for left in (True, False)]


@pytest.fixture
def begun(sandbox: LocalSandbox) -> Any:
    def begin(**settings: Any) -> MicroCode:
        world = MicroCode(sandbox, **settings)
        world.reset(Task("by-hand", "test", {"program": PRODUCT_LESS_A}))
        return world

    return begin


def told(world: MicroCode, agent: str) -> str:
    return world.observe(agent)[-1]["content"]


# ---- programs -------------------------------------------------------------------------------------------------------


def test_a_program_in_every_writing() -> None:
    assert PRODUCT_LESS_A.text == "( b * c ) - a"
    assert PRODUCT_LESS_A.shape == "( b ? c ) ? a"
    assert PRODUCT_LESS_A.spoken == "( b times c ) minus a"
    assert PRODUCT_LESS_A((2, 5, 3)) == 7
    assert Program(("b", "c", "a"), ("-", "*"), False).text == "b - ( c * a )"


@pytest.mark.parametrize("program", SHAPES, ids=lambda program: program.text)
def test_programs_are_what_python_makes_of_them(program: Program) -> None:
    for row in (*INPUTS, *HIDDEN):
        assert program(row) == eval(program.text, dict(zip("abc", row, strict=True)))


@pytest.mark.parametrize("program", SHAPES, ids=lambda program: program.text)
def test_hidden_tests_tell_all_programs_of_a_shape_apart(program: Program) -> None:
    assert not {*HIDDEN} & {*INPUTS} and len({program(row) for row in HIDDEN}) == len(HIDDEN)
    for rival in program.rivals:
        same = [rival(row) == program(row) for row in HIDDEN]
        assert all(same) if rival.digest == program.digest else not any(same)
    assert telling(program) and all(SMALLEST_OUTPUT <= program(row) <= LARGEST_OUTPUT for row in INPUTS)


def test_programs_that_compute_the_same_share_a_digest() -> None:
    same = ["( a + b ) + c", "( b + a ) + c", "a + ( b + c )", "c + ( a + b )"]
    found = {
        program.text: program.digest
        for names in permutations("abc", 3)
        for program in (Program(names, ops, left) for ops in product(OPERATORS, repeat=2) for left in (True, False))
    }
    assert len({found[text] for text in same}) == 1
    assert len(set(found.values())) == 26  # 108 texts


def test_splits_are_disjoint_in_what_programs_compute(sandbox: LocalSandbox) -> None:
    world = MicroCode(sandbox)
    digests: dict[Split, set[str]] = {
        split: {task.data["program"].digest for task in world.tasks(split, 200, 0)} for split in get_args(Split)
    }
    for one, other in permutations(digests.values(), 2):
        assert not one & other
    assert all(split_of(digest) == split for split, found in digests.items() for digest in found)


def test_no_word_means_two_things() -> None:
    words = vocabulary()
    assert len(words) == len(set(words))


# ---- notation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("2 5 3 is 7", 1),
        (" 2 5\n3 is 7 ; 1 1 1 is 0 ", 2),
        ("2 5 3 is 7 ; 2 5 3 is 7", 1),  # once
        ("2 5 3 is -24", 1),
        ("2 5 3 is 7 ; 2 5 3 is 8", None),  # contradictory
        ("2 5 3 is 7 ; 1 1 1 is 0 ; 1 1 2 is 1", None),  # more than two
        ("2 5 3 is 7 ;", None),
        ("2 5 3 is 7 1 1 1 is 0", None),
        ("2 5 3 is 126", None),
        ("2 5 6 is 7", None),
        ("2 5 0 is 7", None),
        ("2 5 3 is x", None),
        ("2 5 is 7", None),
        ("02 5 3 is 7", None),
        ("( b * c ) - a", None),
        ("", None),
    ],
)
def test_what_tests_are(text: str, tests: int | None) -> None:
    found = read_tests(text, 2)
    assert (None if found is None else len(found)) == tests


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("( b * c ) - a", "( b * c ) - a"),
        ("b *  c\n- a", "b * c - a"),
        ("7", "7"),
        ("b * *", "b * *"),  # no Python, but that is for the sandbox to say
        ("b ** c", None),
        ("b * x", None),
        ("b if c else a", None),
        ("a + a + a + a + a + a + a", None),  # 13 words
        ("", None),
    ],
)
def test_what_expressions_are(text: str, read: str | None) -> None:
    assert read_expression(text) == read


def test_tests_are_written_with_what_the_program_gave() -> None:
    suite = (Check("2 5 3", "7"), Check("1 1 1", "0"))
    assert written(suite) == "2 5 3 is 7 ; 1 1 1 is 0"
    assert (
        written(suite, (Ran(True, False, "13"), Ran(False, False, "none"))) == "2 5 3 is 7 got 13 ; 1 1 1 is 0 got none"
    )
    assert written(()) == "none"


# ---- what is seen ---------------------------------------------------------------------------------------------------


async def test_each_agent_lacks_what_the_other_is_told(begun: Any) -> None:
    world = begun()
    assert told(world, TESTER) == "spec ( b times c ) minus a tests none"
    await world.step({TESTER: "2 5 3 is 7"})
    assert told(world, CODER) == "shape ( b ? c ) ? a mine none tests 2 5 3 is 7"
    await world.step({CODER: "( b + c ) - a"})
    assert told(world, TESTER) == "spec ( b times c ) minus a tests 2 5 3 is 7 got 4"
    await world.step({TESTER: "1 2 3 is -1"})
    assert told(world, CODER) == "shape ( b ? c ) ? a mine ( b + c ) - a tests 1 2 3 is -1 got 0"
    assert told(begun(team="solo"), SOLO) == "spec ( b times c ) minus a shape ( b ? c ) ? a mine none"


async def test_at_once_the_mismatch_is_seen_a_turn_later(begun: Any) -> None:
    world = begun(order="simultaneous")
    assert world.next_agents() == (TESTER, CODER)
    result = await world.step({TESTER: "2 5 3 is 7", CODER: "( b + c ) - a"})
    assert (result.team, result.done) == (0, False)
    assert told(world, CODER) == "shape ( b ? c ) ? a mine ( b + c ) - a tests 2 5 3 is 7 got 4"
    assert told(world, TESTER) == "spec ( b times c ) minus a tests 2 5 3 is 7 got 4"


# ---- rewards --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "team", "local"),
    [
        ("2 5 3 is 7", 8 / 9, 1),  # 2 5 3: only the product less a gives 7
        ("2 5 3 is 7 ; 1 4 1 is 3", 8 / 9, 1),
        ("2 2 1 is 3", 1 / 2 - 1 / 9, 1),  # the sum less a gives 3 too
        ("1 1 1 is 0", 0, 1),  # as many rivals that pass as before, nearly
        ("2 5 3 is 8", 0, 0.2),
        ("2 5 3 is 7 ; 1 4 1 is 5", 0, 0.6),  # nothing passes both
        ("( b * c ) - a", 0, 0),
        ("", 0, 0),
    ],
)
async def test_what_tests_earn(begun: Any, text: str, team: float, local: float) -> None:
    result = await begun(local_share=0.5).step({TESTER: text})
    if text == "1 1 1 is 0":
        rivals = sum(rival((1, 1, 1)) == 0 for rival in PRODUCT_LESS_A.rivals)
        assert 1 < rivals < 9
        team = 1 / rivals - 1 / 9
    assert result.team == pytest.approx(team) and result.local == {TESTER: pytest.approx(local / 2)}
    assert not result.done


@pytest.mark.parametrize(
    ("text", "team", "local", "done"),
    [
        ("( b * c ) - a", 1, 1, True),
        ("b * c - a", 1, 1, True),
        ("c * b - a", 1, 1, True),
        ("( b + c ) - a", 0, 0.2, False),
        ("7", 0, 0.2, True),  # agrees with the test and is wrong
        ("b * *", 0, 0, False),
        ("d", 0, 0.1, False),  # Python, but there is no d
        ("b ( c )", 0, 0.1, False),
        ("Program?", 0, 0, False),
    ],
)
async def test_what_programs_earn(begun: Any, text: str, team: float, local: float, done: bool) -> None:
    world = begun(local_share=0.5)
    await world.step({TESTER: "2 5 3 is 7"})
    result = await world.step({CODER: text})
    assert (result.team, result.done, result.success) == (team, done, team == 1)
    assert result.local == {CODER: pytest.approx(local / 2)}


async def test_one_alone_ends_with_its_first_program(begun: Any) -> None:
    assert not (await begun(team="solo").step({SOLO: "what?"})).done
    wrong = await begun(team="solo").step({SOLO: "( b + c ) - a"})
    assert wrong.done and not wrong.success


# ---- demonstrations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skill", "least", "most"), [("expert", 1.0, 1.0), ("novice", 0.1, 0.6), ("bungler", 0.0, 0.25)]
)
async def test_how_good_demonstrators_are(sandbox: LocalSandbox, skill: Skill, least: float, most: float) -> None:
    world, rng, won = MicroCode(sandbox), Random(0), 0
    tasks = world.tasks("train", 100, 0)
    for task in tasks:
        env = world.fork()
        env.reset(task)
        while acting := env.next_agents():
            result = await env.step({agent: env.demonstration(agent, rng, skill=skill) for agent in acting})
        won += result.success
    assert least <= won / len(tasks) <= most


async def test_a_program_runs_once(sandbox: LocalSandbox) -> None:
    world = MicroCode(sandbox)
    (task,) = world.tasks("train", 1, 0)
    for _ in range(3):
        env = world.fork()
        env.reset(task)
        await env.step({TESTER: "1 2 3 is 4"})
        await env.step({CODER: task.data["program"].text})
    assert world.execution.runs == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"horizon": 0}, "env.horizon must be at least 1, got 0"),
        ({"order": "random"}, "env.order=random is unknown"),
        ({"team": "trio"}, "env.team=trio is unknown"),
        ({"max_tests": 0}, "env.max_tests must be at least 1, got 0"),
        ({"local_share": 2}, r"env.local_share must be in \[0, 1\], got 2"),
    ],
)
def test_settings_that_cannot_be(sandbox: LocalSandbox, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MicroCode(sandbox, **settings)
