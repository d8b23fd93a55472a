"""The evaluations that were made of a run later: whose weights were played, by whom, and what was scored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runs.files import CONFIG, EVALUATIONS, SUMMARY, read_object
from ..runs.run import RunReader
from ..runs.tables import PlainTable
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
    return _weights(str(_request(folder).get("checkpoint")))


def _weights(name: str, unknown: str = UNKNOWN) -> str:
    numbered = re.fullmatch(r"iteration_(\d+)", name)
    return f"after iteration {int(numbered[1])}" if numbered else WEIGHTS.get(name, unknown)


def speakers_of(folder: Path) -> tuple[str, ...]:
    """Who else played, a phrase each."""
    return tuple(_speakers(_request(folder)))


PAIRS = (
    "Mean return of the team with its own weights (rows) beside or against those with which another agent plays "
    "(columns): of all tasks, and by its role. “–” was not played."
)
WITHOUT = ("frozen", "remote", "scripted")
"""Of policies that are the same at each checkpoint."""


def pair_tables(run: RunReader) -> list[PlainTable]:
    """Who plays whom, in worlds whose tasks have roles: a matrix for each agent and condition, of the evaluations that
    differ in their checkpoint and in the weights of this agent alone."""
    cells: dict[tuple[str, str, str], dict[tuple[str, str], str]] = {}
    alone: list[tuple[str, str, str, str]] = []  # nobody else's weights
    for folder in run.evaluations:
        request, conditions = _request(folder), read_object(*_file(folder, SUMMARY))[0].get("conditions")
        agents, own = dict(_pairs(request, "agents")), str(request.get("checkpoint"))
        rest = json.dumps([value for key, value in request.items() if key not in ("checkpoint", "agents")])
        place = ", ".join([f"{request.get('split')}", *(f"{key} {request.get(key)}" for key in ("tasks", "seed"))])
        for condition, metrics in conditions.items() if isinstance(conditions, dict) else ():
            if not isinstance(metrics, dict) or not (text := _returns(metrics)):
                continue
            if not agents:
                alone.append((f"{condition}, {place}", rest, own, text))
            for agent, source in agents.items() if len(agents) == 1 else ():
                pair = own, _from(run, source, own)
                cells.setdefault((agent, f"{condition}, {place}", rest), {})[pair] = text
    for (agent, place, rest), matrix in cells.items():
        for _, _, own, text in (each for each in alone if each[:2] == (place, rest) and _learns(run, agent)):
            matrix.setdefault((own, own), text)
    return [_matrix(f"Who plays whom: {agent}, {place}", matrix) for (agent, place, _), matrix in cells.items()]


def _matrix(title: str, cells: Mapping[tuple[str, str], str]) -> PlainTable:
    rows, columns = (sorted({pair[side] for pair in cells}, key=_age) for side in (0, 1))
    lines = [[_weights(row), *(cells.get((row, column), "–") for column in columns)] for row in rows]
    return PlainTable(title, ["", *(_weights(name, name) for name in columns)], lines, PAIRS)


def _age(name: str) -> tuple[bool, bool, str]:
    return name != "base", not name.startswith("iteration_"), name


def _returns(metrics: Mapping[str, Any]) -> str:
    """``+0.017 (first -0.056, second +0.090)``; "" where there are none."""
    means = {name[6:].lstrip("_"): value for name, value in metrics.items() if re.match("return(_|$)", name)}
    if not numeric(whole := means.pop("", None)):
        return ""
    return f"{whole:+.3f} ({', '.join(f'{role} {mean:+.3f}' for role, mean in means.items() if numeric(mean))})"


def _from(run: RunReader, source: str, own: str) -> str:
    """The checkpoint of ``run`` that ``source`` names, beside its checkpoint ``own``; else ``source``."""
    folder, _, name = source.partition("@")
    same = "://" not in source and Path(folder).resolve() == run.path.resolve()
    return (name or own) if same else source


def _learns(run: RunReader, agent: str) -> bool:
    """Whether its policy has other weights at other checkpoints, as far as the configuration says."""
    team, policies = run.config.get("team"), run.config.get("policies")
    policy = policies.get(team.get(agent)) if isinstance(team, dict) and isinstance(policies, dict) else None
    return isinstance(policy, dict) and policy.get("tuning") not in WITHOUT


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
