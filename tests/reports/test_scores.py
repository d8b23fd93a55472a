"""Success that is counted from the episodes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from troupe.evaluation.statistics import wilson
from troupe.reports.values import Score, score_of
from troupe.runs.run import RunReader


def test_lost_episodes_are_left_out(
    run_dir: Path, summary: dict[str, Any], episode: Callable[..., dict[str, Any]], lines: Callable[..., None]
) -> None:
    (run_dir / "summary.json").write_text(json.dumps({key: summary[key] for key in ("status", "iterations")}))
    episodes = [episode("a", True), episode("b", False), episode("c", False, lost="world")]
    lines(run_dir / "episodes" / "test_00003.jsonl", episodes)
    assert score_of(RunReader(run_dir), "eval") == Score(0.5, wilson(1, 2), 2, counted=True)
