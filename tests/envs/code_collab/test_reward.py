"""The four levels by hand: every gate and every constant, on a problem of four tests."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.code_collab import CodeCollab
from troupe.envs.code_collab.feedback import POINTS, CodeScore, UsageRule, cooperation_points, structure_points
from troupe.envs.code_collab.usage import Usage

Begin = Callable[..., CodeCollab]

AUX = "def aux(x):\n    return x * x"
MAIN = "def total(xs):\n    squares = [aux(x) for x in xs]\n    return sum(squares)"
ALONE = "def total(xs):\n    return sum(x * x for x in xs)"


async def levels(world: CodeCollab, aux: str, main: str) -> tuple[float, ...]:
    info = (await world.step({"aux": aux, "main": main})).info
    return tuple(info[name] for name in ("structure", "syntax", "tests", "cooperation"))


@pytest.mark.parametrize(
    ("aux", "main", "expected"),
    [
        # 1. structure: without main nothing else counts
        ("", "", (0, 0, 0, 0)),
        (AUX, "", (0.4, 0, 0, 0)),
        (AUX, "def total(xs):\n    print(xs)", (0.4, 0, 0, 0)),
        (AUX, "def sums(xs):\n    return 0", (0.4, 0, 0, 0)),
        ("def aux(x):\n    pass", "", (0, 0, 0, 0)),
        # 2. syntax
        (AUX, "def total(xs):\n    return sum(xs", (1.0, 0, 0, 0)),
        ("def aux(x):\n    return (x", MAIN, (1.0, 0, 0, 0)),
        # 3. tests: a share of four; aux may be missing
        ("", ALONE, (0.6, 0.5, 1.0, 0)),
        ("", "def total(xs):\n    return 0", (0.6, 0.5, 0.25, 0)),
        ("", "def total(xs):\n    return 7", (0.6, 0.5, 0, 0)),
        ("", MAIN, (0.6, 0.5, 0.25, 0)),  # without aux, the empty list alone is right
        ("", "def total(xs):\n    raise KeyError\n    return 1", (0.6, 0.5, 0, 0)),
        (AUX, "def total(xs=1 / 0):\n    return 5", (1.0, 0.5, 0, 0)),  # it cannot be loaded
        # 4. cooperation, if a test passes
        (AUX, ALONE, (1.0, 0.5, 1.0, 0)),
        (AUX, MAIN, (1.0, 0.5, 1.0, 1.5)),
        (AUX, "def total(xs):\n    y = aux(0)\n    return y + 7", (1.0, 0.5, 0, 0)),
        ("def aux(xs):\n    return sum(x * x for x in xs)", "def total(xs):\n    return aux(xs)", (1.0, 0.5, 1.0, 0.5)),
        (AUX, "def total(xs):\n    aux(1)\n    return sum(x * x for x in xs)", (1.0, 0.5, 1.0, 1.0)),
        (AUX, "def total(xs):\n    y = aux(0)\n    return y", (1.0, 0.5, 0.25, 0.5)),
        ("def aux(x):\n    print(x)", "def total(xs):\n    y = aux(1)\n    return 0", (0.6, 0.5, 0.25, 1.5)),
        # a value that nothing reads is not ignored, as published
        (AUX, "def total(xs):\n    y = aux(1)\n    return sum(x * x for x in xs)", (1.0, 0.5, 1.0, 1.5)),
    ],
)
async def test_the_levels(collab: Begin, aux: str, main: str, expected: tuple[float, ...]) -> None:
    assert await levels(collab(), aux, main) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("use", "statement", "dataflow"),
    [
        (Usage(), 0, 0),
        (Usage(called=True), 1.5, 1.5),
        (Usage(called=True, wrapper=True), 0.5, 0.5),
        (Usage(called=True, ignored=True), 1.0, 1.0),
        (Usage(called=True, ignored=True, wrapper=True), 0, 0),
        (Usage(called=True, unread=True), 1.5, 1.0),
        (Usage(passed=True), 0, 1.5),
        (Usage(passed=True, wrapper=True), 0, 0.5),
    ],
)
def test_cooperation(use: Usage, statement: float, dataflow: float) -> None:
    rules: tuple[UsageRule, UsageRule] = ("statement", "dataflow")
    assert [cooperation_points(use, rule) for rule in rules] == [statement, dataflow]


def test_the_most_is_four() -> None:
    assert CodeScore(
        structure_points(AUX, MAIN, "total"), 0.5, 1.0, cooperation_points(Usage(called=True), "dataflow")
    ) == (CodeScore(1.0, 0.5, 1.0, 1.5))
    assert CodeScore(1.0, 0.5, 1.0, 1.5).points == POINTS == 4


async def test_three_timeouts_end_the_tests(collab: Begin) -> None:
    """Three of four tests never end, so that the last, which would pass, is not run."""
    main = "def total(xs):\n    while xs != [2, 2]: pass\n    return 8"
    world = collab(cpu_s=0.1)
    assert await levels(world, "", main) == (0.6, 0.5, 0, 0)
    assert world.execution.runs == 3


@pytest.mark.parametrize(
    ("aux", "main", "useful"),
    [
        # The empty list needs no aux: 3 of 4 fail with nothing or the first argument, and with a 1 two of three.
        (AUX, MAIN, 2 / 3),
        (AUX, "def total(xs):\n    y = aux(1)\n    return sum(x * x for x in xs)", 0),
        ("def aux(x):\n    return 1", "def total(xs):\n    y = aux(xs)\n    return y * sum(x * x for x in xs)", 0),
        ("def aux(x):\n    return x", "def total(xs):\n    ys = aux(xs)\n    return sum(y * y for y in ys)", 0),
        (
            "def aux(x):\n    return x * 0 + 3",
            "def total(xs):\n    y = aux(3)\n    return sum(x ** (y - 1) for x in xs)",
            0,
        ),
    ],
)
async def test_useless_auxiliaries_are_worthless(collab: Begin, aux: str, main: str, useful: float) -> None:
    """Nothing, the first argument or a constant would do as well."""
    as_published, info = [(await collab(useful_aux=on).step({"aux": aux, "main": main})).info for on in (False, True)]
    assert as_published["cooperation"] == 1.5
    assert info["cooperation"] == pytest.approx(1.5 * useful)
    assert info["useful_aux"] == pytest.approx(useful)


Parts = st.sampled_from(
    ["def aux(x):", "def total(xs):", "    return x", "    aux(1)", "    y = aux(xs)", "return (", '"""', ""]
)


@given(st.lists(Parts, max_size=6).map("\n".join), st.lists(Parts, max_size=6).map("\n".join))
def test_structure_is_bounded(aux: str, main: str) -> None:
    assert structure_points(aux, main, "total") in (0, 0.4, 0.6, 1.0)


async def test_points_of_each_turn_or_what_is_gained(collab: Begin) -> None:
    weak: dict[str, Any] = {"aux": AUX, "main": ALONE}
    for mode, expected in (("points", [2.5, 4.0, 2.5]), ("gain", [2.5, 1.5])):
        world, rewards = collab(horizon=3, turn_reward=mode), []
        for actions in (weak, {"aux": AUX, "main": MAIN}, weak):
            if world.next_agents():
                rewards.append((await world.step(actions)).team)
        assert rewards == pytest.approx(expected)
