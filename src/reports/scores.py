"""Success on the test tasks: from ``summary.json``, or from the episodes where that does not hold it."""

from __future__ import annotations

from dataclasses import dataclass

from ..runs.episodes import EpisodeFile
from ..runs.run import RunReader
from .values import interval, numeric


@dataclass(frozen=True)
class Score:
    """Success of one evaluation, a share in [0, 1], with its 95 % ``interval``, None where that is not known; over
    ``episodes``, where their number is.  ``counted``: from the episodes, since ``summary.json`` does not hold it."""

    success: float
    interval: tuple[float, float] | None
    episodes: int | None
    counted: bool = False


def score_of(run: RunReader, key: str) -> Score | None:
    """Of ``eval_before``, ``eval`` or ``eval_best``; None where neither file has it."""
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
    """The episodes of ``eval_before``, ``eval`` or ``eval_best``."""
    if key == "eval_best":
        return run.episode_files.get("test_best")
    files = [file for file in run.episode_files.values() if file.split == "test" and file.iteration is not None]
    chosen = [file for file in files if (file.iteration == 0) == (key == "eval_before")]
    return chosen[-1] if chosen else None
