"""Programs on tests in the sandbox: test scripts, cached runs, failures that earn nothing, comparison of outputs."""

import dataclasses
import tracemalloc
from collections.abc import Callable, Mapping

import pytest

from troupe.envs.base import WorldFailure
from troupe.envs.code import Code
from troupe.envs.code.assertions import parse_assertions
from troupe.envs.code.problem import Check, Problem
from troupe.envs.code.running import BrokenTestScript, Runner, same_text
from troupe.envs.code.world import CODER, TESTER
from troupe.envs.execution import Executor
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
    return Runner(Executor(sandbox, Limits(cpu_s=1)))


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
    broken = dataclasses.replace(ROOT, script="def check(candidate):\n    candidate(1) + ''")
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
        ("def root(x): return [x[0], [1, [x[0]]]]", False),
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
    ("code", "passed"), [("def root(x): return {'a': (x,) * 3}", True), ("def root(x): return {'a': (x + 5,)}", False)]
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
        ("assert candidate(print) is print", "return x"),
        ("assert candidate(float('nan')) != 0", "return x"),
        ("assert candidate(2) == 3", "return x"),
        ("while False:\n        assert candidate(1)", "return x"),
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


@pytest.mark.parametrize(
    ("body", "reference"),
    [
        ("assert candidate(x=5) == 5", "return x"),
        ("assert len(candidate(1)) == 1 and candidate(1)[1] == 2", "return {x: x + 1}"),
        ("for s in [{5}]:\n        assert candidate(s)", "return True"),
        ("assert candidate((1, 2)) == (1, 2)", "return x + ()"),
        ("assert list(candidate(2)) == [0, 1]", "return iter(range(x))"),
        ("assert candidate(2)", "return object()"),
        ("assert candidate(2) == float('inf')", "return float('inf')"),
    ],
)
async def test_a_script_meets_values_as_they_are(runner: Runner, body: str, reference: str) -> None:
    problem = dataclasses.replace(
        ROOT, script=f"def check(candidate):\n    {body}\n", reference=f"def root(x):\n    {reference}"
    )
    for code, passed in ((str(problem.reference), True), ("def root(x): return ()", False)):
        assert [result.passed for result in await runner.run_hidden(problem, code)] == [passed]


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
    runner = Runner(Executor(sandbox, Limits(cpu_s=0.1)), max_timeouts=1)
    results = await runner.run(DOUBLE, "n = input()\nwhile n != '1': pass\nprint(2)", DOUBLE.hidden)
    assert [result.passed for result in results] == [True, False, False, False]
    assert [result.output for result in results][2:] == ["not run, after timeouts"] * 2
    assert runner.execution.runs == 2
    runner.max_timeouts = 2
    results = await runner.run(DOUBLE, "n = input()\nwhile n != '1': pass\nprint(2)", DOUBLE.hidden)
    assert [result.output for result in results][3:] == ["not run, after timeouts"]
    assert all(result.passed for result in await runner.run(DOUBLE, "print(int(input()) * 2)", DOUBLE.hidden))


@pytest.mark.slow
async def test_what_a_program_returns_on_all_tests_is_never_in_memory_together(sandbox: LocalSandbox) -> None:
    """A list of empty dictionaries takes twenty times as much memory as its text."""
    answers = [str(number) for number in range(6)]
    problem = dataclasses.replace(
        DOUBLE, function="f", hidden=tuple(Check(f"[{number}]", number) for number in answers), examples=()
    )
    runner = Runner(Executor(sandbox, Limits(cpu_s=5), cache_bytes=1))
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


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("1  2 \n\n3", "1 2\n3\n"),
        ("2.0", "2"),
        ("2", "2.0"),
        ("+2 1e3 -0", "2.00 1000 0"),
        ("YES 0.50", "YES 0.5"),
        ("0.333333", "0.33333333333333"),
        ("0.0000001", "0.0"),
        ("9" * 5000, "9" * 5000 + ".0"),
        ("nan", "nan"),
        ("1e999999", "10e999998"),
    ],
)
def test_equal_texts(output: str, expected: str) -> None:
    assert same_text(output, expected, 1e-6)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("1 2 3", "1 2\n3"),
        ("", "0"),
        ("2.0000001", "2"),  # a whole number is exact
        ("50000000000000001", "50000000000000000"),
        ("50000000000000001.0", "50000000000000000"),
        ("0.3333", "0.33333333333333"),
        ("9" * 5000, "9" * 4999 + "8"),
        ("1_0", "10"),
        ("\u0663", "3"),
        ("0x10", "16"),
        ("inf", "1e999"),
        ("nan", "0.5"),
        ("Infinity", "inf"),
        ("1e99999999999", "1.5"),
        ("1.0.0", "1.0"),
        ("1.5", "1.5.0"),
        ("yes", "YES"),
        ("0.5,", "0.5"),
        ("1 2", "1 2 3"),
    ],
)
def test_different_texts(output: str, expected: str) -> None:
    assert not same_text(output, expected, 1e-6)


async def test_printed_integers_have_any_number_of_digits(runner: Runner) -> None:
    problem = dataclasses.replace(DOUBLE, hidden=(Check("9" * 6000, "1" + "9" * 5999 + "8"),))
    assert [result.passed for result in await runner.run_hidden(problem, "print(int(input()) * 2)")] == [True]
    assert [result.passed for result in await runner.run_hidden(problem, "print(int(input()) * 2 + 1)")] == [False]


FUTURE = "from __future__ import annotations\n"


@pytest.mark.parametrize(
    ("code", "passed"),
    [
        (FUTURE + "def f(x: Unknown): return floor(x)\nprint(f(float(input())) * 2)", True),
        (f'"""A program."""\n\n{FUTURE}from __future__ import (\n  division)\nprint(floor(2))', True),
        (f"import math\n# {FUTURE}print(floor(2))", True),
        (f"x = 1\n{FUTURE}print(floor(2))", False),  # Python wants them first
        ("from __future__ import no_such_feature\nprint(floor(2))", False),
        (f"{FUTURE}print(floor(2)", False),
    ],
)
async def test_imports_from_the_future_come_before_a_setup(runner: Runner, code: str, passed: bool) -> None:
    problem = dataclasses.replace(DOUBLE, setup="from math import floor", hidden=(Check("1", "2"),))
    assert [result.passed for result in await runner.run_hidden(problem, code)] == [passed]


PUT = Problem(
    "put",
    "",
    hidden=parse_assertions("assert put((1, 2), 3) == (1, 2, 3)", {"put": "put"}).suite,
    function="put",
)


@pytest.mark.parametrize(
    ("code", "passed"),
    [
        ("def put(x, y): return x + (y,)", True),
        ("def put(x, y): return [*x, y]", False),
        ("def put(x, y): return (1.0, 2, True + 2)", True),
        ("def put(x, y): return (1, 2)", False),
        ("class T(tuple): pass\ndef put(x, y): return T((1, 2, 3))", True),
        ("class T(tuple):\n    __eq__ = lambda *_: True\n    __hash__ = None\ndef put(x, y): return T((1, 2))", False),
        ("class T(tuple):\n    __iter__ = lambda _: iter((1, 2, 3))\ndef put(x, y): return T((1,))", False),
        ("class T:\n    __class__ = tuple\n    __eq__ = lambda *_: True\ndef put(x, y): return T()", False),
        ("class I(int):\n    __eq__ = lambda *_: True\n    __hash__ = None\ndef put(x, y): return (1, 2, I(4))", False),
        ("class S(str):\n    __str__ = lambda _: '3'\ndef put(x, y): return (1, 2, S('x'))", False),
        ("class D(dict):\n    items = lambda _: [(1, 2)]\ndef put(x, y): return D()", False),
        ("def put(x, y):\n    x = []\n    x.append(x)\n    return x", False),
        ("def put(x, y):\n    for _ in range(10**5): x = (x,)\n    return x", False),
        ("def put(x, y): return (1, 2, 10**5000)", False),
        ("def put(x, y): return (1, 2, float('nan'))", False),
        ("def put(x, y): return iter((1, 2, 3))", False),
        ("def put(x, y): return object()", False),
        ("import os\ndef put(x, y):\n    os.write(3, b'{\"$tuple\": 1}')\n    os._exit(0)", False),
        ("import os\ndef put(x, y):\n    os.write(3, b'{\"$object\": [true, null]}')\n    os._exit(0)", False),
    ],
)
async def test_programs_are_judged_by_their_values(runner: Runner, code: str, passed: bool) -> None:
    assert [result.passed for result in await runner.run_hidden(PUT, code)] == [passed]


async def test_arguments_by_name_and_of_all_types(runner: Runner) -> None:
    tests = "assert f(1, by=(2, 3)) == (2, 3)\nassert f({1: 2}) == {1: 2}\nassert f(1j, by={1}) == {1}"
    problem = dataclasses.replace(PUT, function="f", hidden=parse_assertions(tests, {"f": "f"}).suite)
    results = await runner.run_hidden(problem, "def f(x, by=None): return x if by is None else by")
    assert [result.passed for result in results] == [True] * 3
    assert [result.passed for result in await runner.run_hidden(problem, "def f(x, by=0): return by")] == [1, 0, 1]
