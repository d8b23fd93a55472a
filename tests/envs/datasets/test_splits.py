"""Splits of data sets: disjoint, each item once, and everything left out is counted."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from troupe.envs.datasets import CellError, DataError, DataSource, Table, UnusableRow, load_splits
from troupe.envs.math.sources import Question
from troupe.envs.splits import split_of
from troupe.experience import Split


class Fixed(DataSource[Question]):
    """Questions by hand."""

    def __init__(self, *questions: tuple[str, str]) -> None:
        super().__init__(Table("fixed"), {})
        self.questions = [Question(*question) for question in questions]

    def items(self, counts: Counter[str]) -> Iterator[Question]:
        yield from self.questions

    def item(self, row: Mapping[str, Any]) -> Question:
        raise NotImplementedError


def many(first: int, last: int) -> list[tuple[str, str]]:
    return [(f"What is {n} + 1?", str(n + 1)) for n in range(first, last)]


def always_train(key: str) -> Split:
    return "train"


def test_splits_are_disjoint_and_what_is_left_out_is_counted() -> None:
    train = Fixed(*many(0, 60), ("WHAT is 7+1 ?", "8"), ("What is 9 + 1?", "11"), ("Trick?", "1"), ("trick", "2"))
    sources: dict[Split, list[Fixed]] = {
        "train": [train],
        "validation": [Fixed(*many(50, 70))],
        "test": [Fixed(*many(0, 5)), Fixed(*many(65, 75))],
    }
    splits = load_splits("math", sources, always_train)
    assert splits.counts == {
        "train_repeated": 3,
        "train_with_two_answers": 2,
        "validation_repeated": 0,
        "validation_with_two_answers": 0,
        "test_repeated": 0,
        "test_with_two_answers": 0,
        "train_also_in_test": 5,
        "validation_also_in_test": 5,
        "train_also_in_validation": 10,
        "train": 44,
        "validation": 15,
        "test": 15,
    }
    ids = [{task.task_id for task in splits.tasks(split, splits.counts[split], 0)} for split in sources]
    assert len(set.union(*ids)) == 44 + 15 + 15


def test_without_sources_a_split_gets_training_items_by_their_content() -> None:
    splits = load_splits("sums", {"train": [Fixed(*many(0, 300))], "validation": [], "test": []}, split_of)
    assert sum(map(len, splits.items.values())) == 300 and all(splits.items.values())
    assert all(split_of(key) == split for split, items in splits.items.items() for key in items)


def test_with_sources_a_split_gets_no_training_items() -> None:
    test = Fixed(*many(300, 303))
    splits = load_splits("sums", {"train": [Fixed(*many(0, 300))], "validation": [], "test": [test]}, split_of)
    assert [*splits.items["test"].values()] == test.questions
    assert len(splits.items["train"]) + len(splits.items["validation"]) == 300
    assert {split_of(key) for key in splits.items["train"]} == {"train", "test"}


def test_tasks_by_seed() -> None:
    sources = {"train": [Fixed(*many(0, 400))], "validation": [], "test": [Fixed(*many(400, 403))]}
    splits = load_splits("sums", sources, always_train)  # type: ignore[arg-type]
    assert splits.tasks("train", 20, 0) != splits.tasks("train", 20, 1)
    assert splits.tasks("test", 2, 5) == splits.tasks("test", 2, 5)
    (task,) = splits.tasks("test", 1, 0)
    assert task.split == "test" and task.task_id == f"sums-{Question(task.data['question'], '').key}"
    with pytest.raises(ValueError, match="sums: found only 3 of 4 different test tasks"):
        splits.tasks("test", 4, 0)
    with pytest.raises(ValueError, match="sums has the splits train, validation, test, not dev"):
        splits.tasks("dev", 1, 0)  # type: ignore[arg-type]


def test_an_error_begins_with_the_configuration_key() -> None:
    class Broken(Fixed):
        def items(self, counts: Counter[str]) -> Iterator[Question]:
            raise DataError("nowhere.jsonl: no such file")

    sources: dict[Split, list[Fixed]] = {"train": [Fixed(*many(0, 9))], "validation": [], "test": [Broken()]}
    with pytest.raises(DataError, match=r"^env\.data\.test: nowhere\.jsonl: no such file"):
        load_splits("sums", sources, always_train, config_key="env.data")


# ---- sources: rows that are left out are counted, wrong cells are named ----------------------------------------------


Write = Callable[..., str]


class Sums(DataSource[Question]):
    """Questions of a column ``sum``, such as 1+2."""

    def __init__(self, path: str) -> None:
        super().__init__(Table(path), {"sum": str})

    def item(self, row: Mapping[str, Any]) -> Question:
        if not row["sum"]:
            raise UnusableRow("no sum")
        if "+" not in row["sum"]:
            raise CellError("sum", f"expected a sum, got {row['sum']}")
        return Question(row["sum"], "0")


def test_rows_that_are_left_out_are_counted(write: Write) -> None:
    counts: Counter[str] = Counter()
    source = Sums(write([{"sum": text} for text in ("1+2", "", "3+4", "")]))
    assert [question.text for question in source.items(counts)] == ["1+2", "3+4"]
    assert counts == {"rows left out: no sum": 2}


def test_a_wrong_cell_is_named_with_file_row_and_column(write: Write) -> None:
    path = write([{"sum": "1+2"}, {"sum": "3"}])
    with pytest.raises(DataError) as error:
        list(Sums(path).items(Counter()))
    assert str(error.value) == f"{path}, row 1, column sum: expected a sum, got 3"
