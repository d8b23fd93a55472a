"""Code at laptop scale: tasks, prompts, and rewards by hand."""

from itertools import combinations, permutations, product
from typing import Any, get_args

import pytest

from troupe.envs.code import MicroCode
from troupe.envs.code.micro import HELD_OUT, OPERATORS, Program, Structure
from troupe.envs.code.world import CODER, SOLO, TESTER
from troupe.envs.splits import split_of
from troupe.experience import Split, Task
from troupe.sandbox import LocalSandbox

PRODUCT_LESS_A = Program(("b", "c", "a"), ("*", "-"), True)


@pytest.fixture
def begin(sandbox: LocalSandbox) -> Any:
    """``begin(**settings)``: an episode of PRODUCT_LESS_A."""

    def begin_episode(**settings: Any) -> MicroCode:
        world = MicroCode(sandbox, **settings)
        world.reset(Task("by-hand", "test", {"program": PRODUCT_LESS_A}))
        return world

    return begin_episode


def prompt_of(world: MicroCode, agent: str) -> str:
    return world.observe(agent)[-1]["content"]


def test_splits_are_disjoint_in_what_programs_compute(sandbox: LocalSandbox) -> None:
    world = MicroCode(sandbox)
    digests: dict[Split, set[str]] = {
        split: {task.data["program"].digest for task in world.tasks(split, 200, 0)} for split in get_args(Split)
    }
    for one, other in permutations(digests.values(), 2):
        assert not one & other
    assert all(split_of(digest) == split for split, members in digests.items() for digest in members)


def test_split_by_structure(sandbox: LocalSandbox) -> None:
    """The splits of the 18 structures are disjoint, and so are the functions, under any names of the variables."""
    world = MicroCode(sandbox, split="structure")
    structures: dict[Split, set[Structure]] = {}
    functions: dict[Split, set[str]] = {}
    for split in get_args(Split):
        programs = [task.data["program"] for task in world.tasks(split, 300, 0)]
        structures[split] = {program.structure for program in programs}
        functions[split] = {
            Program(names, program.operators, program.left).digest
            for program in programs
            for names in permutations(("a", "b", "c"))
        }
    assert {split: len(members) for split, members in structures.items()} == {"train": 12, "validation": 3, "test": 3}
    for one, other in combinations(structures, 2):
        assert not structures[one] & structures[other]
        assert not functions[one] & functions[other]


def test_held_out_structures_are_new_combinations_of_known_parts() -> None:
    """Each operator is in training in each place of both shapes."""
    train = {(pair, left) for pair in product(OPERATORS, repeat=2) for left in (True, False)} - HELD_OUT.keys()
    places = {(pair[place], place, left) for pair, left in train for place in (0, 1)}
    assert places == set(product(OPERATORS, (0, 1), (True, False)))


# ---- prompts ---------------------------------------------------------------------------------------------------------


async def test_each_agent_lacks_what_the_other_is_prompt_of(begin: Any) -> None:
    world = begin()
    assert prompt_of(world, TESTER) == "spec ( b times c ) minus a tests none"
    await world.step({TESTER: "2 5 3 is 7"})
    assert prompt_of(world, CODER) == "shape ( b ? c ) ? a mine none tests 2 5 3 is 7"
    await world.step({CODER: "( b + c ) - a"})
    assert prompt_of(world, TESTER) == "spec ( b times c ) minus a tests 2 5 3 is 7 got 4"
    await world.step({TESTER: "1 2 3 is -1"})
    assert prompt_of(world, CODER) == "shape ( b ? c ) ? a mine ( b + c ) - a tests 1 2 3 is -1 got 0"
    assert prompt_of(begin(team="solo"), SOLO) == "spec ( b times c ) minus a shape ( b ? c ) ? a mine none"


async def test_at_once_the_mismatch_is_seen_a_turn_later(begin: Any) -> None:
    world = begin(order="simultaneous")
    assert world.next_agents() == (TESTER, CODER)
    result = await world.step({TESTER: "2 5 3 is 7", CODER: "( b + c ) - a"})
    assert (result.team, result.done) == (0, False)
    assert prompt_of(world, CODER) == "shape ( b ? c ) ? a mine ( b + c ) - a tests 2 5 3 is 7 got 4"
    assert prompt_of(world, TESTER) == "spec ( b times c ) minus a tests 2 5 3 is 7 got 4"


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
async def test_rewards_of_tests(begin: Any, text: str, team: float, local: float) -> None:
    result = await begin(local_share=0.5).step({TESTER: text})
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
async def test_rewards_of_programs(begin: Any, text: str, team: float, local: float, done: bool) -> None:
    world = begin(local_share=0.5)
    await world.step({TESTER: "2 5 3 is 7"})
    result = await world.step({CODER: text})
    assert (result.team, result.done, result.success) == (team, done, team == 1)
    assert result.local == {CODER: pytest.approx(local / 2)}


async def test_one_alone_ends_with_its_first_program(begin: Any) -> None:
    assert not (await begin(team="solo").step({SOLO: "what?"})).done
    wrong = await begin(team="solo").step({SOLO: "( b + c ) - a"})
    assert wrong.done and not wrong.success


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
        ({"split": "random"}, "env.split=random is unknown"),
        ({"local_share": 2}, r"env.local_share must be in \[0, 1\], got 2"),
    ],
)
def test_wrong_settings(sandbox: LocalSandbox, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MicroCode(sandbox, **settings)
