"""Values that can be drawn."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troupe.evaluation.statistics import wilson
from troupe.reports.values import Score, interval, numeric, score_of
from troupe.runs.run import RunReader


@pytest.mark.parametrize(
    ("value", "drawable"),
    [(1, True), (0.5, True), (math.nan, False), (math.inf, False), (10**400, False), ("1", False), (None, False)],
)
def test_numbers_are_finite(value: object, drawable: bool) -> None:
    assert numeric(value) is drawable


def test_an_interval_is_a_pair_of_numbers() -> None:
    assert interval([0.25, 0.5]) == (0.25, 0.5)
    for value in ([0.25], [0.25, "x"], [math.nan, 1], None, 0.5):
        assert interval(value) is None


# ---- success that is counted from the episodes -----------------------------------------------------------------------


def test_lost_episodes_are_left_out(
    run_dir: Path, summary: dict[str, Any], episode: Callable[..., dict[str, Any]], lines: Callable[..., None]
) -> None:
    (run_dir / "summary.json").write_text(json.dumps({key: summary[key] for key in ("status", "iterations")}))
    episodes = [episode("a", True), episode("b", False), episode("c", False, lost="world")]
    lines(run_dir / "episodes" / "test_00003.jsonl", episodes)
    assert score_of(RunReader(run_dir), "eval") == Score(0.5, wilson(1, 2), 2, counted=True)
