"""Programs on tests in the sandbox: test scripts, cached runs, failures that earn nothing, comparison of outputs."""

import dataclasses
import tracemalloc
from collections.abc import Callable, Mapping

import pytest

from troupe.envs.base import WorldFailure
from troupe.envs.code import Code
from troupe.envs.code.problem import Check, Problem
from troupe.envs.code.running import BrokenTestScript, Runner, same_text, same_value
from troupe.envs.code.world import CODER, TESTER
from troupe.envs.execution import Execution
from troupe.sandbox import Job, Limits, LocalSandbox, Result, Verdict

from .conftest import DOUBLE, message, program

ROOT = Problem(
    "root",
    "Give a number whose square is that of x.",
    hidden=(),
    function="root",
    setup="import random\n\ndef square(x):\n    return x * x\n",
    script=(
        "def check(candidate):\n    for _ in range(20):\n        x = random.randint(-9, 9)\n"
        "        assert square(candidate(x)) == square(x)\n"
    ),
    reference="def root(x):\n    return x",
)


@pytest.fixture
def runner(sandbox: LocalSandbox) -> Runner:
    return Runner(Execution(sandbox, Limits(cpu_s=1)))


@pytest.mark.parametrize(
    ("code", "passed"),
    [
        ("def root(x): return x", True),
        ("def root(x): return -x", True),  # another right answer than the reference's
        ("def root(x): return abs(x)", True),
        ("def root(x): return 1", False),
        ("def root(x): return x if x > 0 else 0", False),
        ("class Any:\n    __eq__ = lambda *_: True\n    __mul__ = lambda *_: Any()\ndef root(x): return Any()", False),
        ("import random\nrandom.seed(0)\nrandom.randint = lambda *_: 0\ndef root(x): return 0", False),
        ("check = square = lambda *_: True\ndef root(x): return 0", False),
        ("raise SystemExit(0)", False),
        ("def root(x): exit(0)", False),
    ],
)
async def test_a_script_meets_answers_as_data(runner: Runner, code: str, passed: bool) -> None:
    (result,) = await runner.run_hidden(ROOT, code)
    assert result.passed == passed


async def test_a_script_that_does_not_run_is_named(runner: Runner) -> None:
    broken = dataclasses.replace(ROOT, script="def check(candidate):\n    candidate({1, 2})")
    with pytest.raises(BrokenTestScript, match=r"root: its test script does not run: .*TypeError"):
        await runner.run_hidden(broken, "def root(x): return x")


PAIR = dataclasses.replace(
    ROOT,
    script="def check(candidate):\n    for i in range(3):\n        assert candidate((i, 1)) == (i, [1, (i,)])\n",
    reference="def root(x):\n    return (x[0], [1, (x[0],)])",
)


@pytest.mark.parametrize(
    ("code", "passed"),
    [
        (str(PAIR.reference), True),
        ("def root(x): return [x[0], [1, [x[0]]]]", True),  # as a list of calls and values is judged
        ("def root(x): return [x[0], [1]]", False),
        ("def root(x): return [x[0], [1, [x[0]]], 3]", False),
        ("def root(x): return x[0]", False),
        ("calls = []\ndef root(x):\n    calls.append(x)\n    raise ValueError", False),
    ],
)
async def test_a_script_whose_values_are_tuples(runner: Runner, code: str, passed: bool) -> None:
    (result,) = await runner.run_hidden(PAIR, code)
    assert result.passed == passed


@pytest.mark.parametrize(
    ("code", "passed"), [("def root(x): return {'a': [x] * 3}", True), ("def root(x): return {'a': [x + 5]}", False)]
)
async def test_another_call_fails_where_the_script_swallows_exceptions(runner: Runner, code: str, passed: bool) -> None:
    script = (
        "def check(candidate):\n    for x in range(2):\n        try:\n            pairs = candidate(x)['a']\n"
        "            candidate(pairs[0] + 1)\n        except Exception:\n            continue\n"
        "        assert isinstance(pairs, tuple)\n"
    )
    problem = dataclasses.replace(ROOT, script=script, reference="def root(x):\n    return {'a': (x,)}")
    (result,) = await runner.run_hidden(problem, code)
    assert result.passed == passed


@pytest.mark.parametrize(
    ("body", "reference"),
    [
        ("assert candidate(x=5) == 5", "return x"),
        ("assert len(candidate(1)) == 1 and candidate(1)[1] == 2", "return {x: x + 1}"),
        ("for s in [{5}]:\n        assert candidate(s)", "return True"),
        ("assert candidate(2) == 3", "return x"),
        ("while False:\n        assert candidate(1)", "return x"),
        ("assert candidate((1, 2)) == (1, 2)", "return x + ()"),  # as a program it gets a list
        (
            "try:\n        candidate('x')\n    except TypeError:\n        return\n    assert False",
            "return x + 1",
        ),
        ("y = [2, 1]\n    candidate(y)\n    assert y == [1, 2]", "return x.sort()"),
    ],
)
async def test_a_broken_script_leaves_the_other_tests(
    runner: Runner, caplog: pytest.LogCaptureFixture, body: str, reference: str
) -> None:
    script = f"def check(candidate):\n    {body}\n"
    problem = dataclasses.replace(ROOT, script=script, reference=f"def root(x):\n    {reference}")
    with pytest.raises(BrokenTestScript, match="root: its"):
        await runner.run_hidden(problem, "def root(x): return x")
    several = dataclasses.replace(problem, name="several", hidden=(Check("[3]", "3"),))
    for _ in range(2):
        assert [result.passed for result in await runner.run_hidden(several, "def root(x): return x")] == [True]
    assert caplog.text.count("Its other tests decide") == 1 and runner.leaves_out_script(several)


async def test_a_setup_comes_before_the_program(runner: Runner) -> None:
    problem = dataclasses.replace(DOUBLE, setup="from math import floor")
    assert all(result.passed for result in await runner.run_hidden(problem, "print(floor(float(input()) * 2))"))


async def test_each_test_has_a_process_of_its_own(runner: Runner) -> None:
    counting = "import builtins\nbuiltins.n = getattr(builtins, 'n', 0) + 1\nprint(builtins.n)"
    assert [result.output for result in await runner.run(DOUBLE, counting, DOUBLE.hidden)] == ["1\n"] * 4


async def test_a_program_runs_once_a_test(runner: Runner) -> None:
    for _ in range(3):
        await runner.run(DOUBLE, "print(2)", DOUBLE.hidden)
    assert runner.execution.runs == 4


async def test_after_a_timeout_tests_count_as_failed_if_asked_for(sandbox: LocalSandbox) -> None:
    runner = Runner(Execution(sandbox, Limits(cpu_s=0.1)), max_timeouts=1)
    results = await runner.run(DOUBLE, "n = input()\nwhile n != '1': pass\nprint(2)", DOUBLE.hidden)
    assert [result.passed for result in results] == [True, False, False, False]
    assert [result.output for result in results][2:] == ["not run, after timeouts"] * 2
    assert runner.execution.runs == 2
    runner.max_timeouts = 2
    results = await runner.run(DOUBLE, "n = input()\nwhile n != '1': pass\nprint(2)", DOUBLE.hidden)
    assert [result.output for result in results][3:] == ["not run, after timeouts"]
    assert all(result.passed for result in await runner.run(DOUBLE, "print(int(input()) * 2)", DOUBLE.hidden))


async def test_what_a_program_returns_on_all_tests_is_never_in_memory_together(sandbox: LocalSandbox) -> None:
    """A list of empty dictionaries takes twenty times as much memory as its text."""
    answers = [str(number) for number in range(6)]
    problem = dataclasses.replace(
        DOUBLE, function="f", hidden=tuple(Check(f"[{number}]", number) for number in answers), examples=()
    )
    runner = Runner(Execution(sandbox, Limits(cpu_s=5), cache_bytes=1))
    tracemalloc.start()
    try:
        results = await runner.run(problem, "def f(n): return [{}] * 20_000", problem.hidden)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert all(result.ended and not result.passed for result in results)
    assert peak < 5 << 20, "each takes about 1.5 MiB"


class Broken:
    """A sandbox that fails."""

    async def run(self, job: Job, limits: Limits | None = None) -> Result:
        return Result(Verdict.INFRA, detail="no worker lives")

    def describe(self) -> Mapping[str, object]:
        return {"isolation": "none", "unsafe": False}

    async def close(self) -> None:
        return


async def test_a_sandbox_that_fails_is_no_wrong_program(code_world: Callable[..., Code]) -> None:
    world = code_world(DOUBLE)
    world.execution.sandbox = Broken()
    with pytest.raises(WorldFailure, match="no worker lives"):
        await world.step({CODER: program("print(int(input()) * 2)"), TESTER: message(("1", "2"))})


async def test_opening_tells_what_protects_the_trainer(code_world: Callable[..., Code]) -> None:
    opened = await code_world(DOUBLE).open()
    assert opened["isolation"] in ("bubblewrap", "landlock") and opened["unsafe"] is False


def test_equal_texts() -> None:
    assert same_text("1  2 \n\n3", "1 2\n3\n")
    assert not same_text("1 2 3", "1 2\n3") and not same_text("1.0", "1") and not same_text("", "0")


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        (1, 1.0, True),
        (1.0, 1, True),
        ([1.0, [2]], [1, [2.0]], True),
        (True, 1, True),  # as the benchmarks' own judges: Python's ==
        (1, True, True),
        (False, 0.0, True),
        ({"a": [1.0, True]}, {"a": [1, 1]}, True),
        (True, 2, False),
        ({"a": 1}, {"a": 1, "b": 1}, False),
        ({"a": 1}, {"b": 1}, False),
        ([], {}, False),
        ([1], 1, False),
        (0, None, False),
        ("", 0, False),
        (10**400, 1.0, False),
        (10**400, 10**400, True),
        (float(2**53), 2**53 + 1, False),
        (1.5, 1, False),
        ("1", 1, False),
        (None, False, False),
        ([1], [1, 2], False),
        (0.3000001, 0.3, True),
        (0.31, 0.3, False),
        (0.0, 1e-9, False),  # 1e-6 is relative
        (1e-9, 0.0, False),
        (1.0000001e-9, 1e-9, True),
        (5.6e-17, 0.0, True),  # the rounding error of a sum that cancels
        (0.0, 5.6e-17, True),
    ],
)
def test_equal_values(value: object, expected: object, same: bool) -> None:
    assert same_value(value, expected, 1e-6) == same


def test_the_tolerance_of_a_test_itself_is_absolute() -> None:
    assert same_value(100.0004, 100.0, 1e-6, absolute=1e-3) and not same_value(100.002, 100.0, 1e-6, absolute=1e-3)
    assert same_value(0.0, 1e-9, 1e-6, absolute=1e-6)
