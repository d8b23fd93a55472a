"""Differences of settings on the same tasks, with values computed by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from troupe.evaluation.statistics import SHARE, bootstrap_interval, holm, mcnemar, t_interval, wilson
from troupe.reports.differences import Difference, differences, differences_table, signed, success_of
from troupe.reports.grouping import Setting
from troupe.runs.run import RunReader

Make = Callable[..., Setting]


@pytest.fixture
def setting(tmp_path: Path, disk: Any, lines: Callable[..., None], episode: Callable[..., Any]) -> Make:
    """``setting(name, {seed: successes of the tasks a, b, ...})``; None: the episode is lost."""

    def make(name: str, by_seed: dict[int, Sequence[bool | None]], tasks: Sequence[str] = "abcdefghij") -> Setting:
        runs = []
        for seed, wins in by_seed.items():
            path = disk.run(tmp_path / f"{name}-{seed}", disk.config(seed), disk.scores(0, 0, 0))
            rows = [
                episode(task, bool(win)) | ({"lost": "world"} if win is None else {})
                for task, win in zip(tasks, wins, strict=False)
            ]
            lines(path / "episodes" / "test_00004.jsonl", rows)
            runs.append(RunReader(path, tolerant=True))
        return Setting(name, tuple(runs))

    return make


def only(settings: Sequence[Setting]) -> tuple[Difference, Any]:
    """The one difference of ``settings``, and its figures."""
    (row,) = differences(settings)
    return row, row.compared


def test_one_seed(setting: Make) -> None:
    row, own = only([setting("one", {0: [1, 1, 0, 0]}), setting("other", {5: [1, 0, 1, 1]})])
    assert (own.seeds, own.tasks, own.first, own.second, own.difference) == (1, 4, 0.5, 0.75, 0.25)
    assert own.interval == bootstrap_interval([0, -1, 1, 1]) and own.p == mcnemar(1, 2)
    (line,) = differences_table([row]).lines
    assert line[:2] == ["other less one", "+25.0"] and line[3:] == ["50.0 %", "75.0 %", "1", "4", "1", ""]


def test_settings_of_other_groups_are_not_compared(setting: Make) -> None:
    settings = [
        replace(setting(name, {0: [1, 0]}), group=group) for name, group in (("a", "x"), ("b", "x"), ("c", "y"))
    ]
    assert [(row.first, row.second) for row in differences(settings)] == [("a", "b")]


def test_seeds_are_paired(setting: Make) -> None:
    one = setting("one", {0: [0, 0, 1], 1: [0, 1, 1], 2: [1, 1, 1]})
    other = setting("other", {2: [1, 0, 0], 1: [1, 1, 1], 0: [1, 0, 1]})
    row, own = only([one, other])
    assert (own.seeds, own.tasks, row.note) == (3, 3, "")
    assert own.difference == pytest.approx(((1 + 0 + 0) / 3 + (1 + 0 + 0) / 3 + (0 - 1 - 1) / 3) / 3)
    assert own.interval[0] < own.difference < own.interval[1] and 0 < own.p <= 1


def test_a_file_cut_in_the_middle_leaves_the_tasks_in_common(setting: Make) -> None:
    row, own = only([setting("one", {0: [1, 1, 0, 0]}), setting("other", {0: [1, 0, 1]})])
    assert (own.tasks, row.note, own.difference) == (3, "seed 0: 3 of 4 tasks in common", 0.0)


def test_a_lost_episode_takes_one_task_and_leaves_the_others_crossed(setting: Make) -> None:
    first = {seed: [0, 0, 0, 1, 1, 1] for seed in range(3)}
    second = {seed: [1, 1, 1, 0, 1, 1] for seed in range(3)}
    lost = second | {1: [1, 1, 1, 0, 1, None]}
    _, whole = only([setting("a", first, "abcde"), setting("b", second, "abcde")])
    _, own = only([setting("c", first), setting("d", lost)])
    assert own.interval == whole.interval and own.tasks == 6


def test_lost_episodes_do_not_count(setting: Make) -> None:
    _, own = only([setting("one", {0: [1, None, 0]}), setting("other", {0: [1, 1, 1]})])
    assert (own.tasks, own.difference) == (2, 0.5)
    row, own = only([setting("all", {0: [None]}), setting("more", {0: [1]})])
    assert own is None and row.note == "all episodes are lost"


def test_what_cannot_be_compared_says_why(setting: Make) -> None:
    one = setting("one", {0: [1, 1], 1: [1, 1]})
    row, own = only([one, setting("other", {7: [1, 1], 8: [1, 1]})])
    assert own is None and row.note == "no seed in common"
    assert differences_table([row]).lines == [["other less one", "not compared", *[""] * 6, "no seed in common"]]
    row, own = only([one, setting("tasks", {0: [1, 1], 1: [1, 0]}, tasks="xy")])
    assert own is None
    assert row.note == "seed 0 is left out: the test tasks are others; seed 1 is left out: the test tasks are others"
    empty = setting("empty", {0: [1, 1], 1: [1, 0]})
    (empty.runs[0].path / "episodes" / "test_00004.jsonl").unlink()
    row, own = only([one, empty])
    assert (own.seeds, own.difference) == (1, -0.5)
    assert row.note == "seed 0 is left out: empty-0 has no test episodes after training"


def test_all_tests_of_a_page_are_corrected_together(setting: Make) -> None:
    settings = [setting(name, {0: wins}) for name, wins in (("a", [1] * 8), ("b", [0] * 8), ("c", [1] * 4 + [0] * 4))]
    rows = differences(settings)
    assert [(row.first, row.second) for row in rows] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [row.compared and row.compared.p for row in rows] == holm([mcnemar(8, 0), mcnemar(4, 0), mcnemar(0, 4)])


def test_of_many_settings_each_is_compared_with_the_first(setting: Make) -> None:
    rows = differences([setting(str(n), {0: [1, 0]}) for n in range(6)])
    assert [(row.first, row.second) for row in rows] == [("0", str(n)) for n in range(1, 6)]


def test_success_of_a_setting(tmp_path: Path, disk: Any) -> None:
    runs = [
        RunReader(disk.run(tmp_path / str(seed), disk.config(seed), disk.scores(1, wins, wins)), tolerant=True)
        for seed, wins in ((0, 2), (1, 10))
    ]
    both = success_of(Setting("s", tuple(runs)), "eval", "after")
    assert both is not None and (both.seeds, both.mean) == ((0.2, 1.0), 0.6)
    assert both.interval is not None and both.interval[0] == 0.0 and both.interval[1] == 1.0
    single = success_of(Setting("s", (runs[0],)), "eval", "after")
    assert single is not None and single.interval == wilson(2, 10)
    assert success_of(Setting("s", ()), "eval", "after") is None


def test_what_a_row_lacks_is_said(tmp_path: Path, disk: Any) -> None:
    runs = [disk.run(tmp_path / str(seed), disk.config(seed), disk.scores(1, 4 + seed, 4)) for seed in (0, 1, 2)]

    def after() -> Any:
        return success_of(Setting("s", tuple(RunReader(run, tolerant=True) for run in runs)), "eval", "after")

    assert after().notes == ()
    (runs[0] / "summary.json").write_text("{")
    assert after().seeds == (0.4, 0.5, 0.6)
    assert after().notes == ("counted from episodes/, which summary.json lacks",)
    (runs[0] / "episodes" / "test_00004.jsonl").unlink()
    (runs[1] / "episodes" / "test_00004.jsonl").unlink()
    assert after().interval == t_interval([0.5, 0.6], SHARE)
    assert after().notes == ("2 of 3 seeds", "interval over seeds alone: test episodes are missing (1)")


def test_signed() -> None:
    assert [signed(value) for value in (0.117, -0.5, 0)] == ["+11.7", "−50.0", "+0.0"]
