"""Two evaluations, task by task, and the refusals."""

import json
from pathlib import Path

import numpy as np
import pytest

from troupe.evaluation import records
from troupe.evaluation.comparison import PairedComparison, check_tasks, compare, comparisons, locate
from troupe.evaluation.records import EvaluationError, EvaluationRecord
from troupe.evaluation.statistics import DIFFERENCE, hierarchical_estimate, two_sided

NAMES = ("A", "B")


def stored(folder: Path, **conditions: dict[str, list[bool]]) -> Path:
    """An evaluation with these successes of each task's samples, by condition."""
    rows = [
        {"condition": name, "task_id": task, "sample": sample, "success": success}
        for name, tasks in conditions.items()
        for task, samples in tasks.items()
        for sample, success in enumerate(samples)
    ]
    summary = {"conditions": {name: {"success": 0.0} for name in conditions}}
    return records.write(folder, folder.name, "", summary, rows, {}, {}).path


def test_a_comparison_by_hand() -> None:
    first = dict(zip("abcdefgh", (1, 1, 0, 0, 0, 0, 1, 0), strict=True))
    second = dict(zip("abcdefgh", (1, 0, 1, 1, 1, 1, 1, 0), strict=True))
    found = compare([(first, second)])
    assert found is not None
    low, high = found.interval
    assert found == PairedComparison(1, 8, 0.375, 0.75, 0.375, (low, high), pytest.approx(2 * 6 / 32), 1, 4)
    assert -0.26 < low < 0.375 < high <= 1


def test_over_seeds_by_hand() -> None:
    """What the hierarchical bootstrap makes of the differences of each seed: 1 and 0; of the second 0.5 and 0."""
    pairs = [({"a": 0, "b": 1}, {"a": 1, "b": 1}), ({"a": 0.5, "b": 0}, {"a": 1, "b": 0})]
    found = compare(pairs)
    estimate = hierarchical_estimate([np.array([1.0, 0.0]), np.array([0.5, 0.0])], crossed=True, bounds=DIFFERENCE)
    assert found is not None and estimate is not None
    assert found == PairedComparison(2, 2, 0.375, 0.75, 0.375, estimate.interval, two_sided(estimate))
    nested = compare([pairs[0], ({"c": 0.5, "d": 0}, {"c": 1, "d": 0})])
    assert nested is not None and nested.tasks == 4 and nested.p != found.p


def test_lost_tasks_are_compared_with_nothing() -> None:
    found = compare([({"a": 1, "b": None, "c": 0}, {"a": 0, "b": 1, "c": 1})])
    assert found is not None
    assert (found.tasks, found.lost, found.first, found.second) == (2, 1, 0.5, 0.5)
    assert (found.only_first, found.only_second) == (1, 1)
    assert compare([({"a": None}, {"a": 1})]) is None


def test_several_samples_have_no_mcnemar(tmp_path: Path) -> None:
    a, b = (
        stored(tmp_path / "a", x={"a": [True, False], "b": [False] * 2}),
        stored(tmp_path / "b", x={"a": [True], "b": [True]}),
    )
    ((_, found),) = comparisons([str(a)], [str(b)])
    assert (found.first, found.second, found.difference) == (0.25, 1.0, 0.75)
    assert (found.only_first, found.only_second, found.p) == (None, None, None)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("abc", "abd", "number 3 is c in A, but d in B"),
        ("abc", "bac", "number 1 is a in A, but b in B"),
        ("abc", "ab", "number 3 is c in A, but B ends"),
        ("a", "ab", "number 2 is b in B, but A ends"),
    ],
)
def test_different_tasks_are_refused_by_the_first(first: str, second: str, said: str) -> None:
    with pytest.raises(EvaluationError, match=f"different tasks: {said}"):
        check_tasks(list(first), list(second), NAMES)


def test_conditions_of_one_name_are_compared(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", sampled={"t": [True]}, greedy={"t": [False]}, other={"t": [False]})
    b = stored(tmp_path / "b", sampled={"t": [False]}, greedy={"t": [False]})
    assert [(name, row.difference) for name, row in comparisons([str(a)], [str(b)])] == [("sampled", -1), ("greedy", 0)]
    ((name, row),) = comparisons([f"{a}@greedy"], [f"{a}@sampled"])
    assert (name, row.difference) == ("greedy / sampled", 1)


def test_seeds_are_compared_in_one_condition(tmp_path: Path) -> None:
    ones, others = (
        [str(stored(tmp_path / f"{side}{i}", sampled={"t": [True]}, greedy={"t": [False]})) for i in range(2)]
        for side in "ab"
    )
    assert [name for name, _ in comparisons(ones, others)] == ["sampled", "greedy"]
    assert [n for n, _ in comparisons([f"{ones[0]}@greedy", ones[1]], others)] == ["greedy"]
    for last in ([f"{ones[0]}@greedy", f"{ones[1]}@sampled"], [ones[0], f"{ones[1]}@sampled"]):
        with pytest.raises(EvaluationError, match=r"a1@sampled: the first pair compares .*; name the same in all"):
            comparisons(last, others)


def test_single_conditions_need_no_name(tmp_path: Path) -> None:
    a, b = stored(tmp_path / "a", horizon2={"t": [True]}), stored(tmp_path / "b", horizon4={"t": [True]})
    assert [name for name, _ in comparisons([str(a)], [str(b)])] == ["horizon2 / horizon4"]


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", x={"t": [True]}, y={"t": [True]})
    b = stored(tmp_path / "b", z={"t": [True]}, w={"t": [True]})
    for one, other, said in (
        (str(a), str(b), "no condition in common: .* has x, y, .* has z, w"),
        (f"{a}@w", str(b), "has no condition 'w'; it has x, y"),
        (str(tmp_path / "none"), str(b), "none: there is no such folder"),
    ):
        with pytest.raises(EvaluationError, match=said):
            comparisons([one], [other])


def test_a_run_directory_stands_for_its_only_evaluation(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")  # the run's own
    one = stored(tmp_path / "evaluations" / "one", x={"t": [True]})
    assert locate(str(tmp_path))[0].path == one
    stored(tmp_path / "evaluations" / "two", x={"t": [True]})
    with pytest.raises(EvaluationError, match=r"several evaluations; name one of .*one, .*two"):
        locate(str(tmp_path))


def test_the_evaluation_of_an_older_run_can_be_compared(old_run: Path, tmp_path: Path) -> None:
    stored(old_run / "evaluations" / "one", sampled={"s": [False], "t": [True]})
    new = stored(tmp_path / "new", sampled={"s": [True], "t": [True]})
    ((name, row),) = comparisons([str(old_run)], [str(new)])
    assert (name, row.first, row.second, row.only_second) == ("sampled", 0.5, 1.0, 1)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    folder = stored(tmp_path / "a", x={"t": [True]})
    (folder / "results.jsonl").write_text('{"condition": "x"')
    with pytest.raises(EvaluationError, match=r"results\.jsonl cannot be read"):
        EvaluationRecord.read(folder).successes("x")
    (folder / "summary.json").write_text(json.dumps({"conditions": {}}))
    with pytest.raises(EvaluationError, match=r"summary\.json is damaged .*; remove .* to play"):
        EvaluationRecord.read(folder)
