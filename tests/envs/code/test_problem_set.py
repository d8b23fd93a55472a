"""Problem sets: splits disjoint by statement, hidden tests of each split, rows that are left out."""

import dataclasses
from collections.abc import Callable
from typing import get_args

import pytest

from troupe.envs.code import ProblemSet, ProblemSource
from troupe.envs.code.sources import SCHEMAS
from troupe.envs.datasets import Table
from troupe.experience import Split

from .conftest import apps_row, eval_row

WriteTable = Callable[..., Table]


@pytest.mark.parametrize("separate", [True, False])
def test_splits_are_disjoint_by_statement(write_table: WriteTable, separate: bool) -> None:
    shouted = [apps_row(n) | {"question": apps_row(n)["question"].upper() + "\n\n!"} for n in range(40)]
    train = write_table([apps_row(number) for number in range(200)] + shouted, "train.jsonl")
    test = write_table(shouted[:20] + [apps_row(n) for n in range(300, 320)], "test.jsonl") if separate else None
    splits = ProblemSet(ProblemSource("apps", train.path), test and ProblemSource("apps", test.path)).load("code")
    keys = {split: {problem.key for problem in splits.items[split].values()} for split in get_args(Split)}
    assert sum(map(len, keys.values())) == len(set().union(*keys.values())) == (220 if separate else 200)
    assert all(keys.values())
    assert (len(keys["test"]) == 40) == separate
    assert (splits.counts["train_repeated"], splits.counts["test_repeated"]) == (40, 0)
    repeated_in_test = splits.counts["train_also_in_test"] + splits.counts["validation_also_in_test"]
    assert repeated_in_test == (20 if separate else 0)
    assert {task.split for task in splits.tasks("test", 5, 0)} == {"test"}


def test_rows_that_are_left_out_are_counted(write_table: WriteTable) -> None:
    table = write_table([apps_row(1), apps_row(2, input_output="")])
    assert ProblemSet(ProblemSource("apps", table.path)).load("code").counts["rows left out: no hidden tests"] == 1


def test_tests_that_are_left_out_are_counted_and_said(
    write_table: WriteTable, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no script that may be run instead."""
    tests = ["assert f(1) == 2", "assert eval(f('1')) == 3", "assert f([f(1)]) == 2"]
    row = {"task_id": 2, "prompt": "Add one.", "code": "def f(x):\n  return x + 1", "test_list": tests}
    table = write_table([row, row | {"task_id": 3, "prompt": "Add 1.", "test_list": tests[:1]}])
    splits = ProblemSet(None, ProblemSource("mbpp", table.path)).load("code")
    assert splits.counts["test_unusable_tests"] == 2
    assert "code: 2 tests of 1 of the 2 test problems are left out" in caplog.text


def test_a_shortened_training_problem_keeps_a_script_that_is_among_its_first(write_table: WriteTable) -> None:
    loop = "    for i in range(3):\n        assert candidate(i) == i + 1\n"
    test = "def check(candidate):\n    assert candidate(5) == 6\n" + loop
    train = write_table([eval_row("a", test=test)], "train.jsonl")
    other = write_table([apps_row(1)], "test.jsonl")
    for most, scripted in {1: False, 2: True, 0: True}.items():
        sources = ProblemSource("human_eval", train.path), ProblemSource("apps", other.path)
        items = ProblemSet(*sources, max_hidden_train=most).load("code").items
        [problem] = [*items["train"].values(), *items["validation"].values()]
        assert problem.key in items["train"] and (problem.script is not None) == scripted


@pytest.mark.parametrize("separate", [True, False])
def test_hidden_tests_of_training_alone_can_be_fewer(write_table: WriteTable, separate: bool) -> None:
    train = write_table([apps_row(number) for number in range(60)], "train.jsonl")
    test = write_table([apps_row(number) for number in range(60, 63)], "test.jsonl") if separate else None
    sources = ProblemSource("apps", train.path), test and ProblemSource("apps", test.path)
    splits = ProblemSet(*sources, max_hidden_train=1).load("code")
    for split, problems in splits.items.items():
        assert problems
        for problem in problems.values():
            unshortened = SCHEMAS["apps"].problem(problem.name, apps_row(int(problem.name.removeprefix("apps/"))))
            hidden = unshortened.hidden[:1] if split == "train" else unshortened.hidden
            assert problem == dataclasses.replace(unshortened, hidden=hidden)


def test_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match=r"kind=mbbp of x\.jsonl is unknown; known are apps, code_contests"):
        ProblemSource("mbbp", "x.jsonl")
