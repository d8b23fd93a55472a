"""Problems of data sets: what is made of a row, what is refused and how it is named, and that splits are disjoint."""

import base64
import dataclasses
import json
import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from troupe.envs.code import Library, Source
from troupe.envs.code.library import digest_of
from troupe.envs.code.problem import Check
from troupe.envs.code.sources import IMPORTS, SOURCES, Unusable
from troupe.envs.rows import DataError, Table, rows
from troupe.errors import ConfigError
from troupe.experience import Split
from troupe.setup.configuration import check_overridden

from .conftest import apps_row, contest_row, eval_row, live_row

Written = Callable[..., Table]


def problem_of(kind: str, row: dict[str, Any]) -> Any:
    return SOURCES[kind].problem("name", row)


def test_apps_stdin() -> None:
    found = problem_of("apps", apps_row(1))
    assert found.hidden == (Check("1\n", "2\n"), Check("4\n", "8\n")) and found.function is None
    assert found.reference == "print(int(input()) * 2)" and not found.setup


@pytest.mark.parametrize(
    ("starter", "function"), [("def f(a, b):\n\t", "f"), ("class Solution:\n    def f(self, a, b):", "Solution.f")]
)
@pytest.mark.parametrize("outputs", [[3, [4]], [[3], [[4]]]])
def test_apps_calls(starter: str, function: str, outputs: list[Any]) -> None:
    tests = {"fn_name": "f", "inputs": [[1, 2], [[3], 4]], "outputs": outputs}
    found = problem_of("apps", apps_row(1, input_output=json.dumps(tests), starter_code=starter))
    assert found.hidden == (Check("[1, 2]", "3"), Check("[[3], 4]", "[4]"))
    assert (found.function, found.setup) == (function, IMPORTS)


def test_code_contests() -> None:
    found = problem_of("code_contests", contest_row("a"))
    assert found.examples == (Check("1\n", "2\n"),)
    assert found.hidden == (Check("5\n", "10\n"), Check("7\n", "14\n"))  # each once
    assert found.reference == "print(int(input()) * 2)"  # the one in Python 3


@pytest.mark.parametrize("packed", [True, False])
def test_live_code_bench(packed: bool) -> None:
    found = problem_of("live_code_bench", live_row("a", packed))
    assert found.examples == (Check("[[1], 1]", "2"),)
    assert found.hidden == (Check("[[1, 2], 3]", "6"),)
    assert (found.function, found.reference) == ("Solution.total", None)


def test_human_eval() -> None:
    found = problem_of("human_eval", eval_row("a"))
    assert found.hidden == (Check("[1]", "2"), Check("[4]", "5")) and found.script is None
    assert found.setup == "from typing import List\n\ndef one() -> int:\n    return 1\n\n"
    assert "return x + one()" in found.reference


def test_human_eval_keeps_a_script_where_nothing_can_be_taken_apart() -> None:
    loop = "def check(candidate):\n    for i in range(3):\n        assert candidate(i) == i + 1\n"
    assert problem_of("human_eval", eval_row("a", test=loop)).script == loop
    mixed = problem_of("human_eval", eval_row("a", test=loop + "    assert candidate(5) == 6\n"))
    assert (mixed.script, mixed.refused, mixed.hidden) == (None, 1, (Check("[5]", "6"),))


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
    with pytest.raises(Unusable, match="no hidden tests"):
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
    with pytest.raises(Unusable, match=why):
        problem_of("apps", apps_row(1, input_output=tests))


NUMBER = base64.b64encode(zlib.compress(pickle.dumps(7))).decode()
EVIL = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()


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
        "row 1, column private_test_cases: neither",
    ),
    "live metadata": ("live_code_bench", live_row("b", metadata="{}"), "row 1, column metadata: functional tests"),
    "eval test": ("human_eval", eval_row("b", test="def check(:"), "row 1, column test or prompt: no Python"),
    "eval prompt": ("human_eval", eval_row("b", entry_point="less"), "row 1, column prompt: no function less"),
}
GOOD = {
    "apps": apps_row(1),
    "code_contests": contest_row("a"),
    "live_code_bench": live_row("a"),
    "human_eval": eval_row("a"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_cell_that_is_not_as_promised_is_named(written: Written, case: str) -> None:
    kind, bad, words = BAD[case]
    table = written([GOOD[kind], bad])
    with pytest.raises(DataError, match=words) as error:
        Library(Source(kind, table.path)).read()
    assert table.path in str(error.value)


def test_a_column_that_is_missing_is_named(written: Written) -> None:
    table = written([{key: value for key, value in apps_row(1).items() if key != "question"}])
    with pytest.raises(DataError, match=r"rows\.jsonl has no column question; it has problem_id, solutions"):
        Library(Source("apps", table.path)).read()


def test_a_cell_of_another_type_is_named(written: Written) -> None:
    with pytest.raises(DataError, match=r"row 0, column question: expected str, got int"):
        Library(Source("apps", written([apps_row(1) | {"question": 7}]).path)).read()


def test_files_that_cannot_be_read(tmp_path: Path, written: Written) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: no such file"):
        list(rows(Table("nowhere.jsonl"), {}))
    (tmp_path / "broken.jsonl").write_text('{"a": 1}\n{"a": ')
    with pytest.raises(DataError, match=r"broken\.jsonl cannot be read as json"):
        list(rows(Table(str(tmp_path / "broken.jsonl")), {}))


def test_parquet_is_read_alike(tmp_path: Path, written: Written) -> None:
    table = written([contest_row(name) for name in "abc"])
    table.load().to_parquet(tmp_path / "rows.parquet")
    columns = SOURCES["code_contests"].columns
    assert [*rows(Table(str(tmp_path / "rows.parquet")), columns)] == [*rows(table, columns)]


def test_what_is_no_file_is_a_name_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[Any] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: asked.append((args, kwargs)))
    Table("codeparrot/apps", split="test", config="all", revision="abc").load()
    assert asked == [(("codeparrot/apps", "all"), {"split": "test", "revision": "abc"})]


@pytest.mark.parametrize("separate", [True, False])
def test_splits_are_disjoint_by_statement(written: Written, separate: bool) -> None:
    shouted = [apps_row(n) | {"question": apps_row(n)["question"].upper() + "\n\n!"} for n in range(40)]
    train = written([apps_row(number) for number in range(200)] + shouted, "train.jsonl")
    test = written(shouted[:20] + [apps_row(n) for n in range(300, 320)], "test.jsonl") if separate else None
    shelves = Library(Source("apps", train.path), test and Source("apps", test.path)).read()
    statements = {
        split: {digest_of(task.data["problem"].statement) for task in shelves.tasks[split]} for split in get_args(Split)
    }
    assert sum(map(len, statements.values())) == len(set().union(*statements.values())) == (220 if separate else 200)
    assert all(statements.values())
    assert (len(statements["test"]) == 40) == separate
    assert shelves.counts["repeated statements left out"] == (60 if separate else 40)
    assert {task.split for task in shelves.draw("test", 5, 0)} == {"test"}
    with pytest.raises(ValueError, match="validation tasks, not 1000"):
        shelves.draw("validation", 1000, 0)


def test_what_is_left_out_is_counted(written: Written) -> None:
    table = written([apps_row(1), apps_row(2, input_output="")])
    assert Library(Source("apps", table.path)).read().counts["rows left out: no hidden tests"] == 1


@pytest.mark.parametrize("separate", [True, False])
def test_hidden_tests_of_training_alone_can_be_fewer(written: Written, separate: bool) -> None:
    train = written([apps_row(number) for number in range(60)], "train.jsonl")
    test = written([apps_row(number) for number in range(60, 63)], "test.jsonl") if separate else None
    library = Library(Source("apps", train.path), test and Source("apps", test.path), max_hidden_train=1)
    shelves = library.read()
    for split, tasks in shelves.tasks.items():
        assert tasks
        for problem in (task.data["problem"] for task in tasks):
            whole = problem_of("apps", apps_row(int(problem.name.removeprefix("apps/"))))
            hidden = whole.hidden[:1] if split == "train" else whole.hidden
            assert problem == dataclasses.replace(whole, name=problem.name, hidden=hidden)


@pytest.mark.parametrize("world", ["code_problems", "code_humaneval"])
def test_the_key_names_the_split_that_it_shortens(world: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.data\.max_hidden .*did you mean env\.data\.max_hidden_train\?"):
        check_overridden("train", ["experiment=code_specialized", f"env={world}", "env.data.max_hidden=0"])


def test_a_kind_that_is_unknown() -> None:
    with pytest.raises(ValueError, match=r"kind=mbpp of x\.jsonl is unknown; known are apps, code_contests"):
        Source("mbpp", "x.jsonl")
