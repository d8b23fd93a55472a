"""The evaluations that were made of a run later: whose weights were played, by whom, and what was scored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runs.files import CONFIG, EVALUATIONS, SUMMARY, read_object
from .values import interval, numeric

UNTRAINED = "before training"
WEIGHTS = {"best": "best on validation", "last": "last weights", "base": UNTRAINED}
"""By checkpoint, when in training an episode was played."""
UNKNOWN = "weights not recorded"


@dataclass(frozen=True)
class Evaluation:
    """``weights``: the run's own, in words; ``speakers``: who else played, a phrase each.  ``rows`` are (condition,
    success, low, high, turns), turns None where they are not known; ``problem`` is a sentence where the summary is
    damaged or missing."""

    name: str
    weights: str
    speakers: tuple[str, ...]
    rows: list[tuple[str, float, float, float, float | None]]
    problem: str = ""


def evaluation_of(folder: Path) -> Evaluation:
    """That in ``folder``, whatever its files hold."""
    summary, problem = read_object(*_file(folder, SUMMARY))
    if not problem and not (folder / SUMMARY).exists():
        problem = f"{EVALUATIONS}/{folder.name}: {SUMMARY} is missing: it goes on, or was killed."
    conditions = summary.get("conditions")
    rows = []
    for name, metrics in conditions.items() if isinstance(conditions, dict) else ():
        metrics = metrics if isinstance(metrics, dict) else {}
        success, span = metrics.get("success"), interval(metrics.get("success_ci95"))
        if numeric(success) and span:
            rows.append((str(name), success, *span, turns if numeric(turns := metrics.get("turns")) else None))
    return Evaluation(folder.name, weights_of(folder), speakers_of(folder), rows, problem)


def weights_of(folder: Path) -> str:
    """One of :data:`WEIGHTS`, or after how many iterations, by the evaluation's configuration; else :data:`UNKNOWN`."""
    name = str(_request(folder).get("checkpoint"))
    numbered = re.fullmatch(r"iteration_(\d+)", name)
    return f"after iteration {int(numbered[1])}" if numbered else WEIGHTS.get(name, UNKNOWN)


def speakers_of(folder: Path) -> tuple[str, ...]:
    """Who else played, a phrase each."""
    return tuple(_speakers(_request(folder)))


def _file(folder: Path, name: str) -> tuple[Path, str]:
    """The directory of the run, and the name of a file of the evaluation in it."""
    return folder.parents[1], f"{EVALUATIONS}/{folder.name}/{name}"


def _request(folder: Path) -> dict[str, Any]:
    """The keys of the evaluation with the values that null ones had; none where they cannot be read."""
    request = read_object(*_file(folder, CONFIG))[0].get("request")
    return request if isinstance(request, dict) else {}


def _speakers(request: Mapping[str, Any]) -> Iterator[str]:
    """In the order in which each key replaces what the one before it says."""
    if request.get("swap") is True:
        yield "the two agents with each other's policies"
    yield from (f"{agent} with the policy of {other}" for agent, other in _pairs(request, "swap"))
    for agent, source in _pairs(request, "agents"):
        yield f"{agent} untrained" if source == "base" else f"{agent} from {source}"
    silent = request.get("silence")
    yield from (f"{agent} silent" for agent in (silent if isinstance(silent, list) else ()))
    yield from (f"{agent} with the last message of {other}" for agent, other in _pairs(request, "echo"))
    yield from (f"{key}={value}" for key, value in _pairs(request, "sampling"))


def _pairs(request: Mapping[str, Any], key: str) -> Iterator[tuple[str, str]]:
    value = request.get(key)
    yield from ((str(agent), str(other)) for agent, other in (value.items() if isinstance(value, dict) else ()))
