"""Which values of a metric can be shown, files may hold anything; how seconds are written; success on test tasks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TypeGuard

from ..runs.episodes import EpisodeFile
from ..runs.run import RunReader


def numeric(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a finite number."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max  # an int may be larger than any float


def interval(value: object) -> tuple[float, float] | None:
    """(Low, high) where ``value`` is a pair of finite numbers."""
    if isinstance(value, list) and len(value) == 2 and all(map(numeric, value)):
        return value[0], value[1]
    return None


def duration(seconds: float) -> str:
    """``50 ms``, ``26.9 s``, ``7 min 12 s``, ``3 h 5 min``."""
    if 0 < seconds < 0.9995:
        return f"{max(round(1000 * seconds), 1)} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@dataclass(frozen=True)
class Score:
    """Success of one evaluation, a share in [0, 1], with its 95 % ``interval``, None where that is not known; over
    ``episodes``, where their number is.  ``counted``: from the episodes, since ``summary.json`` does not hold it."""

    success: float
    interval: tuple[float, float] | None
    episodes: int | None
    counted: bool = False


def score_of(run: RunReader, key: str) -> Score | None:
    """Of ``eval_before``, ``eval``, ``eval_best`` or ``validation_before``; None where neither file has it."""
    success, span = run.summary.get(f"{key}/success"), interval(run.summary.get(f"{key}/success_ci95"))
    if numeric(success):
        count = run.summary.get(f"{key}/episodes")
        return Score(success, span, count if isinstance(count, int) else None)
    file = episodes_of(run, key)
    results = [episode["success"] for episode in file.episodes if not episode.get("lost")] if file else []
    if not results:
        return None
    from ..evaluation.statistics import wilson  # scipy, which takes a second

    return Score(sum(results) / len(results), wilson(sum(results), len(results)), len(results), counted=True)


def episodes_of(run: RunReader, key: str) -> EpisodeFile | None:
    """The episodes of ``eval_before``, ``eval``, ``eval_best`` or ``validation_before``."""
    if name := {"eval_best": "test_best", "validation_before": "validation_00000"}.get(key):
        return run.episode_files.get(name)
    files = [file for file in run.episode_files.values() if file.split == "test" and file.iteration is not None]
    chosen = [file for file in files if (file.iteration == 0) == (key == "eval_before")]
    return chosen[-1] if chosen else None
