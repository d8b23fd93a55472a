"""Curves of settings: means over seeds and their bands."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from troupe.evaluation.statistics import t_interval
from troupe.reports.bands import _line, completions, iterations, learning_curves, metric_curves, tag
from troupe.reports.grouping import Setting
from troupe.runs.run import RunReader


@pytest.fixture
def setting(tmp_path: Path, disk: Any, lines: Callable[..., None]) -> Callable[..., Setting]:
    """``setting(name, {iteration: row}, ...)``: one run per argument."""

    def make(name: str, *runs: Mapping[int, Mapping[str, Any]], **summary: Any) -> Setting:
        made = []
        for seed, rows in enumerate(runs):
            path = disk.run(tmp_path / f"{name}{seed}", disk.config(seed), summary)
            lines(path / "metrics.jsonl", [{"iteration": i, **row} for i, row in rows.items()])
            made.append(RunReader(path, tolerant=True))
        return Setting(name, tuple(made))

    return make


def success(*values: float | None, each: float = 10) -> dict[int, dict[str, Any]]:
    return {
        i: {"rollout/completions": each} | ({} if value is None else {"eval/success": value})
        for i, value in enumerate(values, 1)
    }


def test_the_mean_over_seeds_and_its_interval(setting: Callable[..., Setting]) -> None:
    own = setting("a", success(0.25, None, 0.5), success(0.75, None, 0.5, each=30), success(0.5, 0.125))
    line = _line(own, 0, "eval/success", iterations, True)
    assert line.points == [(1, 0.5), (2, 0.125), (3, 0.5)]
    low, high = t_interval([0.25, 0.75, 0.5])
    assert line.band == [(1, max(0, low), min(1, high))]  # of one seed there is none, nor of seeds that agree
    by_cost = _line(own, 0, "eval/success", completions, True)
    assert [x for x, _ in by_cost.points] == pytest.approx([50 / 3, 20, 60])


def test_a_band_holds_what_the_metric_can_be(setting: Callable[..., Setting]) -> None:
    keys = ("rollout/tokens_per_s", "train/p/grad_norm", "train/p/loss", "rollout/tool/reward")
    own = setting("a", {4: dict.fromkeys(keys, 1.0)}, {4: dict.fromkeys(keys, 3.0)})
    lows = [_line(own, 0, key, iterations, False).band[0][1] for key in keys]
    assert lows[:2] == [0, 0] and lows[2:] == [t_interval([1, 3])[0]] * 2 and lows[2] < 0


def test_all_curves_have_the_axis_of_the_longest_run(setting: Callable[..., Setting]) -> None:
    rows = {1: {"diagnostics/tool/influence": 0.5, "rollout/tool/reward": 1.0}, 8: {"rollout/tool/reward": 1.0}}
    assert {drawing.x_labels[-1] for drawing in metric_curves([setting("a", rows)])} == {(100.0, "8")}


def test_validation_before_training_is_the_first_point(setting: Callable[..., Setting]) -> None:
    own = setting("a", success(0.5), **{"validation_before/success": 0.25})
    assert _line(own, 0, "eval/success", completions, True).points == [(0, 0.25), (10, 0.5)]


def test_rows_without_costs_have_no_curve_over_them(setting: Callable[..., Setting]) -> None:
    own = setting("a", {1: {"eval/success": 0.5}, 2: {"eval/success": "high"}})
    assert [drawing.title for drawing in learning_curves([own])] == ["Success on validation tasks, by iteration"]


def test_what_the_settings_have_is_drawn(setting: Callable[..., Setting]) -> None:
    row = {"rollout/tool/reward": 1.0, "train/p/loss": 0.5, "diagnostics/tool/entropy_nats": 0.5}
    drawings = metric_curves([setting("a", {1: row}), setting("b", {1: {"rollout/plan/reward": 2.0}})])
    assert [drawing.title for drawing in drawings] == [
        "tool: reward per message, in training",
        "plan: reward per message, in training",
        "tool: entropy per sampled token, nats",
        "p: loss",
    ]
    assert [mark.tag for drawing in drawings for mark in drawing.marks] == ["s0", "s1", "s0", "s0"]


def test_settings_beyond_the_colours_are_dashed() -> None:
    assert [tag(place) for place in (0, 6, 7)] == ["s0", "s6", "s7 dashed"]


def test_curves_begin_at_the_test_before_training(setting: Callable[..., Setting]) -> None:
    tested = {"eval_before/success": 0.25}
    both = [setting(name, success(None, 0.5), **tested) for name in "ab"]
    by_iteration, by_cost = learning_curves([*both, setting("c", success(None, 0.75))])
    assert [mark.name for mark in by_iteration.marks] == ["", "", "a", "b", "c"]
    assert by_iteration.marks[0].line.startswith("M0.0 750.0 L")
    end = "Dashed: from success on the test tasks before training."
    assert by_iteration.note.endswith(end) and by_cost.note.endswith(end)
