"""Rows of data sets as problems: each schema, rows that are left out, and wrong cells by name."""

import base64
import json
import os
import pickle
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from troupe.envs.code import ProblemSource
from troupe.envs.code.comparison import EQUAL
from troupe.envs.code.problem import Check
from troupe.envs.code.sources import IMPORTS, SCHEMAS
from troupe.envs.datasets import DataError, Table, UnusableRow

from .conftest import apps_row, contest_row, eval_row, live_row

WriteTable = Callable[..., Table]


def problem_of(kind: str, row: dict[str, Any]) -> Any:
    return SCHEMAS[kind].problem("name", row)


def test_apps_stdin() -> None:
    problem = problem_of("apps", apps_row(1))
    assert problem.hidden == (Check("1\n", "2\n"), Check("4\n", "8\n")) and problem.function is None
    assert problem.reference == "print(int(input()) * 2)" and not problem.setup


@pytest.mark.parametrize(
    ("starter", "function"), [("def f(a, b):\n\t", "f"), ("class Solution:\n    def f(self, a, b):", "Solution.f")]
)
@pytest.mark.parametrize("outputs", [[3, [4]], [[3], [[4]]]])
def test_apps_calls(starter: str, function: str, outputs: list[Any]) -> None:
    tests = {"fn_name": "f", "inputs": [[1, 2], [[3], 4]], "outputs": outputs}
    problem = problem_of("apps", apps_row(1, input_output=json.dumps(tests), starter_code=starter))
    assert problem.hidden == (Check("[1, 2]", "3"), Check("[[3], 4]", "[4]"))
    assert (problem.function, problem.setup) == (function, IMPORTS)


def test_code_contests() -> None:
    problem = problem_of("code_contests", contest_row("a"))
    assert problem.examples == (Check("1\n", "2\n"),)
    assert problem.hidden == (Check("5\n", "10\n"), Check("7\n", "14\n"))  # each once
    assert problem.reference == "print(int(input()) * 2)"  # the one in Python 3


@pytest.mark.parametrize("packed", [True, False])
def test_live_code_bench(packed: bool) -> None:
    problem = problem_of("live_code_bench", live_row("a", packed))
    assert problem.examples == (Check("[[1], 1]", "2"),)
    assert problem.hidden == (Check("[[1, 2], 3]", "6"),)
    assert (problem.function, problem.reference) == ("Solution.total", None)


def test_human_eval() -> None:
    problem = problem_of("human_eval", eval_row("a"))
    assert problem.hidden == (Check("[1]", "2", EQUAL), Check("[4]", "5", EQUAL)) and problem.script is None
    assert problem.setup == "from typing import List\n\ndef one() -> int:\n    return 1\n\n"
    assert "return x + one()" in problem.reference


def test_human_eval_keeps_a_script_where_an_assertion_is_not_supported() -> None:
    loop = "def check(candidate):\n    for i in range(3):\n        assert candidate(i) == i + 1\n"
    assert problem_of("human_eval", eval_row("a", test=loop)).script == loop
    both = loop + "    assert candidate(5) == 6\n"
    problem = problem_of("human_eval", eval_row("a", test=both))
    assert (problem.script, problem.unusable_tests, problem.hidden) == (both, 0, (Check("[5]", "6", EQUAL),))


def test_a_script_that_cannot_be_run_is_counted() -> None:
    """It may run answers as code."""
    more = "    for i in range(3):\n        assert eval('candidate(i)')\n"
    problem = problem_of(
        "human_eval", eval_row("a", test="def check(candidate):\n    assert candidate(5) == 6\n" + more)
    )
    assert (problem.script, problem.unusable_tests, problem.hidden) == (None, 1, (Check("[5]", "6", EQUAL),))


def test_a_statement_of_mbpp_may_hold_what_ends_a_docstring() -> None:
    problem = problem_of("mbpp", MBPP | {"prompt": 'Replace \\x by """.'})
    assert problem.statement == 'def f(x):\n    """Replace \\\\x by \\"\\"\\".\n    """\n'
    assert problem.hidden == (Check("[1]", "2", EQUAL),)


def test_of_mbpp_every_assertion_is_a_test() -> None:
    problem = problem_of("mbpp", MBPP | {"test_list": ["assert f(1) == 2", "assert f(f(1)) == 3"]})
    assert problem.hidden == (Check("[1]", "2", EQUAL),) and problem.unusable_tests == 0
    assert problem.script == "def check(f):\n    import math\n    assert f(1) == 2\n    assert f(f(1)) == 3"


NO_TESTS = {"input": [], "output": []}


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("apps", apps_row(1, input_output="")),
        ("apps", apps_row(1, input_output='{"inputs": [], "outputs": []}')),
        ("code_contests", contest_row("a", private_tests=NO_TESTS, generated_tests=NO_TESTS)),
        ("live_code_bench", live_row("a", private_test_cases="[]")),
    ],
)
def test_rows_without_hidden_tests_are_no_problems(kind: str, row: dict[str, Any]) -> None:
    with pytest.raises(UnusableRow, match="no hidden tests"):
        problem_of(kind, row)


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


LONG = '{"fn_name": "f", "inputs": [[' + "9" * 5000 + ']], "outputs": [1]}'


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ('{"inputs": ["1"], "outputs": []}', "more inputs than outputs, or fewer"),
        (LONG, "integers of more than 4300 digits"),
        ('{"fn_name": "f", "inputs": [[NaN]], "outputs": [1]}', "values that JSON does not have"),
    ],
)
def test_rows_of_apps_that_cannot_be_used(tests: str, why: str) -> None:
    with pytest.raises(UnusableRow, match=why):
        problem_of("apps", apps_row(1, input_output=tests))


def test_a_script_of_human_eval_that_may_run_answers_cannot_be_used() -> None:
    script = "def check(candidate):\n    for n in range(3):\n        assert eval(candidate(n)) == n\n"
    with pytest.raises(UnusableRow, match="nor a script that can be run"):
        problem_of("human_eval", eval_row("a", test=script))


NUMBER = base64.b64encode(zlib.compress(pickle.dumps(7))).decode()
TWO = base64.b64encode(zlib.compress(pickle.dumps(("[]", "[]")))).decode()
MEMO = base64.b64encode(zlib.compress(b"]r\xff\xff\xff\x7f.")).decode()  # an index for which a memo would be made
CUT = base64.b64encode(zlib.compress(pickle.dumps("[]")[:-4])).decode()
EVIL = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()


MBPP = {"task_id": 2, "prompt": "Add one.", "code": "def f(x):\n  return x + 1", "test_list": ["assert f(1) == 2"]}
BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "apps json": ("apps", apps_row(2, input_output="{"), "row 1, column input_output: no JSON"),
    "apps kind": ("apps", apps_row(2, input_output="[]"), "row 1, column input_output: expected JSON of a dict"),
    "apps lists": (
        "apps",
        apps_row(2, input_output='{"inputs": [1]}'),
        "row 1, column input_output: inputs and outputs",
    ),
    "apps solutions": ("apps", apps_row(2, solutions="{}"), "row 1, column solutions: expected JSON of a list"),
    "contests": (
        "code_contests",
        contest_row("b", private_tests={"input": ["1"], "output": []}),
        "row 1, column private_tests: no input and output of one length",
    ),
    "contest keys": (
        "code_contests",
        contest_row("b", private_tests={"inputs": ["1"], "outputs": ["2"]}),
        "row 1, column private_tests: no input and output of one length",
    ),
    "contest text": (
        "code_contests",
        contest_row("b", private_tests={"input": [None], "output": ["2"]}),
        "row 1, column private_tests: an input or output that is no text",
    ),
    "contest solutions": (
        "code_contests",
        contest_row("b", solutions={"languages": [3], "solution": ["x"]}),
        "row 1, column solutions: no language and solution of one length",
    ),
    "contest solution": (
        "code_contests",
        contest_row("b", solutions={"language": [3], "solution": [4]}),
        "row 1, column solutions: a solution that is no text",
    ),
    "apps deep": ("apps", apps_row(2, input_output="[" * 100_000), "row 1, column input_output: no JSON: lists within"),
    "apps solution": ("apps", apps_row(2, solutions="[1]"), "row 1, column solutions: a solution that is no text"),
    "apps function": (
        "apps",
        apps_row(2, input_output='{"inputs": [1], "outputs": [2], "fn_name": 5}'),
        "row 1, column input_output: fn_name is no text: 5",
    ),
    "apps nothing": (
        "apps",
        apps_row(2, input_output='{"inputs": [null], "outputs": ["2"]}'),
        "row 1, column input_output: expected a text or lines, got None",
    ),
    "live deep": (
        "live_code_bench",
        live_row("b", public_test_cases="[" * 100_000),
        "row 1, column public_test_cases: no JSON: lists within",
    ),
    "live numbers": (
        "live_code_bench",
        live_row("b", public_test_cases='[{"input": 1, "output": 2, "testtype": "functional"}]'),
        "row 1, column public_test_cases: a case whose input, output or testtype is no text",
    ),
    "live kind": (
        "live_code_bench",
        live_row("b", public_test_cases='[{"input": "1", "output": "2", "testtype": [1]}]'),
        "row 1, column public_test_cases: a case whose",
    ),
    "mbpp tests": ("mbpp", MBPP | {"task_id": 3, "test_list": [1]}, "row 1, column test_list: expected texts, got"),
    "live cases": (
        "live_code_bench",
        live_row("b", public_test_cases="[1]"),
        "row 1, column public_test_cases: a case",
    ),
    "live packed": (
        "live_code_bench",
        live_row("b", private_test_cases="%"),
        "row 1, column private_test_cases: neither",
    ),
    "live not ascii": ("live_code_bench", live_row("b", private_test_cases="ü"), "private_test_cases: neither"),
    "live no text": ("live_code_bench", live_row("b", private_test_cases=NUMBER), "private_test_cases: no packed text"),
    "live evil": (
        "live_code_bench",
        live_row("b", private_test_cases=EVIL),
        "row 1, column private_test_cases: no packed text",
    ),
    "live two texts": ("live_code_bench", live_row("b", private_test_cases=TWO), "no packed text"),
    "live large memo": (
        "live_code_bench",
        live_row("b", private_test_cases=MEMO),
        "private_test_cases: no packed text",
    ),
    "live cut": ("live_code_bench", live_row("b", private_test_cases=CUT), "private_test_cases: neither"),
    "live metadata": ("live_code_bench", live_row("b", metadata="{}"), "row 1, column metadata: functional tests"),
    "eval deep": (
        "human_eval",
        eval_row("b", test="x = " + "1+" * 5000 + "1"),
        "row 1, column test or prompt: no Python",
    ),
    "mbpp deep": (
        "mbpp",
        MBPP | {"task_id": 3, "code": "x = " + "-" * 9000 + "1"},
        "column code or test_list: no Python",
    ),
    "eval test": ("human_eval", eval_row("b", test="def check(:"), "row 1, column test or prompt: no Python"),
    "eval prompt": ("human_eval", eval_row("b", entry_point="less"), "row 1, column prompt: no function less"),
}
GOOD = {
    "apps": apps_row(1),
    "code_contests": contest_row("a"),
    "live_code_bench": live_row("a"),
    "human_eval": eval_row("a"),
    "mbpp": MBPP,
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_cell_is_named(write_table: WriteTable, case: str) -> None:
    kind, bad, words = BAD[case]
    table = write_table([GOOD[kind], bad])
    with pytest.raises(DataError, match=words) as error:
        list(ProblemSource(kind, table.path).items(Counter()))
    assert table.path in str(error.value)
