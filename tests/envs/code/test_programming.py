"""Programming problems: rewards by hand, prompts, the end of an episode, the contract."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from troupe.envs.base import TeamEnv
from troupe.envs.code import Code, ProblemSet, ProblemSource
from troupe.envs.code.world import CODER, SOLO, TESTER
from troupe.envs.testing import check_world
from troupe.sandbox import LocalSandbox

from .conftest import DOUBLE, TOTAL, Rows, apps_row, message, program

RIGHT = program("print(int(input()) * 2)")
GOOD = message(("4", "8"))

# Program, tests; the team's reward, the coder's and the tester's, whether the episode ends.
TABLE: dict[str, tuple[str, str, float, float, float, bool]] = {
    "both right": (RIGHT, GOOD, 1, 1, 1, True),
    "two right tests": (RIGHT, message(("4", "8"), ("0", "0")), 1, 1, 1, True),
    "a wrong test": (RIGHT, message(("4", "9")), 1, 1, 0.2, False),
    "one test of two wrong": (RIGHT, message(("4", "9"), ("5", "10")), 1, 1, 0.6, False),
    "a test that is no input": (RIGHT, message(("four", "8")), 1, 1, 0.2, False),
    "no tests": (RIGHT, "I have none.", 1, 1, 0, False),
    "contradictory tests": (RIGHT, message(("4", "8"), ("4", "9")), 1, 1, 0, False),
    "one test twice": (RIGHT, message(("4", "8"), ("4", "8")), 1, 1, 1, True),
    "too many tests": (RIGHT, message(("4", "8"), ("5", "10"), ("6", "12")), 1, 1, 0, False),
    "half a test": (RIGHT, "**Test Input:**\n```\n4\n```", 1, 1, 0, False),
    "a constant": (program("print(4)"), GOOD, 0.25, 0.4, 1, False),
    "a constant that the test asks for": (program("print(8)"), GOOD, 0, 0.2, 1, True),
    "wrong, and a wrong test that agrees": (program("print(4)"), message(("4", "4")), 0.25, 0.4, 0.2, True),
    "crashes on some": (program("n = int(input())\nprint(2 * n if n < 3 else 1 / 0)"), GOOD, 0.5, 0.6, 1, False),
    "crashes on all": (program("print(1 / 0)"), GOOD, 0, 0.1, 1, False),
    "no Python": (program("print("), GOOD, 0, 0, 1, False),
    "prints nothing": (program("pass"), GOOD, 0, 0.2, 1, False),
    "never ends": (program("while True: pass"), GOOD, 0, 0.1, 1, False),
    "no fence": ("print(int(input()) * 2)", GOOD, 0, 0, 1, False),
    "an empty fence": (program(""), GOOD, 0, 0, 1, False),
    "both silent": ("", "", 0, 0, 0, False),
}


@pytest.mark.parametrize("case", TABLE)
async def test_rewards_by_hand(code_world: Callable[..., Code], case: str) -> None:
    text, tests, team, coder, tester, done = TABLE[case]
    result = await code_world(DOUBLE, cpu_s=0.3).step({CODER: text, TESTER: tests})
    assert result.team == team and result.done == done
    assert result.local == pytest.approx({CODER: coder, TESTER: tester})
    assert result.success == (team == 1)


@pytest.mark.parametrize(
    ("text", "team", "coder"),
    [
        ("def total(xs): return sum(xs)", 1, 1),
        ("def total(xs): return float(sum(xs))", 1, 1),  # whole floats may stand for integers
        ("def total(xs): return str(sum(xs))", 0, 0.2),
        ("def total(xs): return bool(xs) and sum(xs)", 1, 1),  # False is 0, as in the benchmarks' own judges
        ("def total(xs): return sum(xs) + 1e-9", 0.25, 0.4),  # near 3 is not 3, near 1.5 is 1.5
        ("def tally(xs): return sum(xs)", 0, 0.1),
        ("total = 3", 0, 0.1),
    ],
)
async def test_functions(code_world: Callable[..., Code], text: str, team: float, coder: float) -> None:
    result = await code_world(TOTAL).step({CODER: program(text), TESTER: message(("[[2, 2]]", "4"))})
    assert (result.team, result.local[CODER], result.local[TESTER]) == (team, pytest.approx(coder), 1)


async def test_team_rewards_sum_to_what_the_last_program_passes(code_world: Callable[..., Code]) -> None:
    world = code_world(DOUBLE)
    quarter, wrong = program("print(4)"), message(("4", "9"))
    steps = [await world.step({CODER: text, TESTER: wrong}) for text in (quarter, RIGHT, "", RIGHT)]
    assert [step.team for step in steps] == [0.25, 0.75, -1, 1]
    assert [step.local[CODER] for step in steps] == pytest.approx([0.4, 0.6, 0, 0])  # beyond the best
    assert [step.done for step in steps] == [False, False, False, True] and steps[-1].success


async def test_without_a_reference_the_hidden_tests_say_what_is_right(code_world: Callable[..., Code]) -> None:
    alone = dataclasses.replace(DOUBLE, reference=None)
    for pair, reward in ((("10\n", "20\n"), 1.0), (("4", "8"), 0.2)):
        text = f"**Test Input:**\n```\n{pair[0]}\n```\n**Test Output:**\n```\n{pair[1]}\n```"
        assert (await code_world(alone).step({CODER: RIGHT, TESTER: text})).local[TESTER] == reward


async def test_sequential_the_coder_reads_the_tests(code_world: Callable[..., Code]) -> None:
    world = code_world(DOUBLE, order="sequential")
    first = await world.step({TESTER: GOOD})
    assert (first.team, first.local, world.next_agents(), world.turn) == (0, {TESTER: 1}, (CODER,), 0)
    assert "Expected output:\n```\n8\n```" in world.observe(CODER)[-1]["content"]
    result = await world.step({CODER: program("print(int(input()) + 2)")})
    assert (result.done, world.next_agents(), world.turn) == (False, (TESTER,), 1)
    await world.step({TESTER: GOOD})
    assert "The program gives:\n```\n6\n```" in world.observe(CODER)[-1]["content"]
    assert (await world.step({CODER: RIGHT})).success


async def test_both_are_shown_the_mismatch(code_world: Callable[..., Code]) -> None:
    world = code_world(TOTAL)
    await world.step({CODER: program("def total(xs): return xs[0]"), TESTER: message(("[[]]", "0"), ("[[2]]", "2"))})
    for agent in (CODER, TESTER):
        prompt = world.observe(agent)[-1]["content"]
        assert (
            "Input:\n```\n[[]]\n```\nExpected output:\n```\n0\n```\nThe program gives:\n```\ncrash: IndexError"
            in prompt
        )
        assert "[[2]]\n```\nExpected output:\n```\n2\n```\nThe program gives the same." in prompt
        assert "def total(xs): return xs[0]" in prompt and "[[1]]" not in prompt  # the example, which passes


async def test_alone_the_examples_decide_the_end(code_world: Callable[..., Code]) -> None:
    world = code_world(TOTAL, team="solo")
    wrong = await world.step({SOLO: program("def total(xs): return 2 * xs[0]")})
    assert not wrong.done and "The program gives:\n```\n2\n```" in world.observe(SOLO)[-1]["content"]
    assert (await world.step({SOLO: program("def total(xs): return xs[0]")})).done  # wrong, but nobody knows
    assert (await code_world(DOUBLE, team="solo").step({SOLO: program("print(4)")})).done


def oracle(env: TeamEnv, agent: str, rng: Any) -> str:
    assert isinstance(env, Code)
    return GOOD if agent == TESTER else program(str(env._problem.reference))


@pytest.mark.parametrize("settings", [{}, {"order": "sequential"}, {"team": "solo"}], ids=str)
async def test_the_world_keeps_the_contract(
    sandbox: LocalSandbox, write_table: Callable[[Rows], Any], settings: dict[str, Any]
) -> None:
    data = ProblemSet(ProblemSource("apps", write_table([apps_row(number) for number in range(60)]).path))
    await check_world(Code(sandbox, data, horizon=2, **settings), tasks=2, team=(-1, 1), oracle=oracle, solved=1.0)
