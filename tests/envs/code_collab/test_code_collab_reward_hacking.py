"""Reward hacking in Code collaboration: points without cooperation or a right program; docs/worlds/ lists them."""

from collections.abc import Callable

import pytest

from troupe.envs.code_collab import CodeCollab, MicroCollab

Begin = Callable[..., CodeCollab]

AUX = "def aux(x):\n    return x * x"
ALONE = "def total(xs):\n    return sum(x * x for x in xs)"
SOLVED = "return sum(x * x for x in xs)"


async def points(world: CodeCollab, aux: str, main: str) -> float:
    return (await world.step({"aux": aux, "main": main})).team


async def test_a_main_that_ignores_aux(collab: Begin) -> None:
    """The published reward pays it where the value goes to a variable."""
    assert await points(collab(), AUX, ALONE) == 2.5
    call = f"def total(xs):\n    aux(1)\n    {SOLVED}"
    assert await points(collab(), AUX, call) == 3.5
    assert await points(collab(useful_aux=True), AUX, call) == 2.5
    unread = f"def total(xs):\n    y = aux(1)\n    {SOLVED}"
    assert await points(collab(), AUX, unread) == 4
    assert await points(collab(usage="dataflow"), AUX, unread) == 3.5
    assert await points(collab(useful_aux=True), AUX, unread) == 2.5


@pytest.mark.parametrize(
    "aux", ["def aux(x):\n    return 0", "def aux(x):\n    return x", "def aux(x):\n    return len([x]) - 1"]
)
async def test_an_aux_without_content(collab: Begin, aux: str) -> None:
    """A constant or its own argument, woven into a program that needs none of it."""
    main = f"def total(xs):\n    y = aux(0)\n    {SOLVED} + y"
    assert await points(collab(usage="dataflow"), aux, main) == 4
    assert await points(collab(usage="dataflow", useful_aux=True), aux, main) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("aux", "call"),
    [
        ("def aux(x):\n    return (1, 2)", "a, b = aux(xs)\n    y = b - a - 1"),
        ("def aux(x):\n    return {1}", "y = min(aux(xs)) - 1"),
        ("def aux(x):\n    return iter([0])", "y = next(aux(xs))"),
        ("def aux(x, y):\n    return y", "y = aux(None, xs) and 0 or 0"),
        ("def aux(x, y):\n    return y", "y = len(aux(None, xs)) - len(xs)"),
        ("def aux(*, b):\n    return b", "y = len(aux(b=xs)) - len(xs)"),
        ("def aux(*xs):\n    return xs[0]", "y = len(aux(xs)) - len(xs)"),
        ("def aux(**k):\n    return k['b']", "y = len(aux(b=xs)) - len(xs)"),
        ("def aux(n):\n    return 0 if n == 0 else aux(n - 1)", "y = aux(3)"),
    ],
)
async def test_constants_and_arguments_of_any_kind(collab: Begin, aux: str, call: str) -> None:
    """A constant that is no JSON, made in several calls, or any of its arguments, on which main relies."""
    main = f"def total(xs):\n    {call}\n    {SOLVED} + y"
    assert await points(collab(usage="dataflow"), aux, main) == 4
    assert await points(collab(usage="dataflow", useful_aux=True), aux, main) == pytest.approx(2.5)


async def test_a_main_that_asks_for_the_value_of_its_aux(collab: Begin) -> None:
    """Allowed: main solves all of it, but returns nothing where aux answers otherwise.  What it says of itself no test
    can tell from work."""
    main = f"def total(xs):\n    if aux(1) + aux(2) != 5:\n        return None\n    {SOLVED}"
    assert await points(collab(usage="dataflow", useful_aux=True), AUX, main) == 4


async def test_a_call_that_is_only_text(collab: Begin) -> None:
    """The publication's patterns also find calls in comments and strings."""
    for line in ("# aux(1)", "'aux(1)'", "eval('aux(1)')", "if 0:\n        exec('y = aux(1)')"):
        assert await points(collab(), AUX, f"def total(xs):\n    {line}\n    {SOLVED}") == 2.5


async def test_an_aux_of_ones_own(collab: Begin) -> None:
    inner = f"def total(xs):\n    def aux(x):\n        return x * x\n    {SOLVED.replace('x * x', 'aux(x)')}"
    assert await points(collab(), "def aux(x):\n    return 0", inner) == 2.5
    outer = f"{AUX}\n\ndef total(xs):\n    ys = [aux(x) for x in xs]\n    return sum(ys)"
    assert await points(collab(), "", outer) < 2  # main's message has only its main function


async def test_structure_and_syntax_alone(collab: Begin) -> None:
    """1.5 points, as published, for functions that return anything; no cooperation counts without a passed test."""
    main = "def total(xs):\n    y = aux(xs)\n    return [y, y]"
    assert await points(collab(), "def aux(x):\n    return x", main) == 1.5
    assert await points(collab(), "return return return", "def total return") == 0


@pytest.mark.parametrize(
    "main",
    [
        "def total(xs):\n    print(5, 9, 0, 8)\n    return",
        "def total(xs):\n    import sys\n    sys.stdout.write('5')\n    return sys.exit(0)",
        "def total(xs):\n    class Any:\n        def __eq__(self, other):\n            return True\n    return Any()",
        "def total(xs):\n    import os\n    os.write(3, b'5')\n    return os._exit(0)",
        "def total(xs):\n    import builtins\n    builtins.sum = builtins.len = lambda *a: 5\n    return None",
        "def total(xs):\n    import sys\n    sys.modules['__main__'].check = lambda c: True\n    return None",
        "def total(xs):\n    import json\n    json.dumps = lambda *a, **k: '5'\n    return object()",
        "def total(xs):\n    raise SystemExit(0)\n    return 5",
    ],
)
async def test_programs_that_attack_the_judge(collab: Begin, main: str) -> None:
    """The values are compared in another process, which has the expected ones alone."""
    assert await points(collab(cpu_s=0.3), AUX, main) <= 1.75  # 5 or 0 by chance on one test, with no call of aux


async def test_an_aux_that_replaces_main(collab: Begin) -> None:
    """It may; the program is judged as a whole, and gets no more than an honest one."""
    aux = "def aux(x):\n    global total\n    total = lambda xs: 5\n    return 5"
    main = "def total(xs):\n    y = aux(xs)\n    return y * 1"
    assert await points(collab(), aux, main) == pytest.approx(1.0 + 0.5 + 0.25 + 1.5)
    assert await points(collab(useful_aux=True), aux, main) == pytest.approx(1.75 + 1.5)


async def test_tests_in_a_message_are_not_run(collab: Begin) -> None:
    """Nothing of a message but its function is."""
    aux = "import os\nos._exit(0)\n" + AUX + "\nraise SystemExit"
    assert await points(collab(), aux, f"{ALONE}\n\ndef check(candidate):\n    pass") == 2.5


async def test_a_weak_turn_first(collab: Begin) -> None:
    """With the gain, an episode has 4 points at most; with points, as published, each turn is judged by itself."""
    world, total = collab(horizon=3, turn_reward="gain"), 0.0
    for main in ("", ALONE, ALONE):
        total += await points(world, AUX, main)
    assert total == 2.5


async def test_micro_words_outside_of_the_lexicon(micro: Callable[..., MicroCollab]) -> None:
    world = micro()
    result = await world.step({"aux": "def aux ( x ) : import os ; return x", "main": "print ( 53 )"})
    assert result.team == 0
