"""Reading a run directory back: what is there, and by name what is missing or not whole."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import yaml

EPISODE_KEYS = {"task_id": str, "success": bool, "turns": int, "messages": list}
MESSAGE_KEYS = {"turn": int, "agent": str, "saw": str, "said": str}


class RunFilesError(ValueError):
    """A folder that holds no run."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes of one evaluation; ``name`` is the file's, e.g. ``test_00000``; ``iteration`` those done before."""

    name: str
    split: str
    iteration: int
    episodes: list[dict[str, Any]]


@dataclass
class RunFiles:
    """A run directory's files, parsed.  ``problems`` are sentences about what is missing or was left out.

    ``first`` and ``last`` are the first and the last evaluation that there are (two different ones, or None), on the
    test split where it was played; an interrupted run has only validations after the first.
    """

    path: Path
    config_text: str
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    first: Evaluation | None = None
    last: Evaluation | None = None
    problems: list[str] = field(default_factory=list)


def read_run(path: Path) -> RunFiles:
    """Raises :class:`RunFilesError` where ``path`` is not a run directory; anything else that is amiss is a problem."""
    if not (path / "config.yaml").is_file():
        what = "has no config.yaml: it is not a run directory" if path.is_dir() else "is not a folder"
        raise RunFilesError(f"{path} {what}")
    run = RunFiles(path, _text(path / "config.yaml"))
    try:
        config = yaml.safe_load(run.config_text)
    except yaml.YAMLError as error:
        config = f"not YAML: {str(error).splitlines()[0]}"
    if isinstance(config, dict):
        run.config = config
    else:
        run.problems.append(f"config.yaml cannot be read ({config if config else 'it is empty'}).")
    run.versions = _object(path / "versions.json", run.problems)
    run.summary = _object(path / "summary.json", run.problems)
    for number, row in _lines(path / "metrics.jsonl", run.problems):
        if isinstance(row.get("iteration"), int):
            run.rows.append(row)
        else:
            run.problems.append(f"metrics.jsonl, line {number}, has no iteration and is left out.")
    _evaluations(run)
    return run


def _evaluations(run: RunFiles) -> None:
    """The evaluations to show, see :class:`RunFiles`."""
    found = []
    for file in (run.path / "episodes").glob("*.jsonl"):
        if name := re.fullmatch(r"(test|validation)_(\d+)", file.stem):
            found.append((name[1] != "test", int(name[2]), file))
    if not found:
        run.problems.append("episodes/ holds no episodes.")
        return
    found.sort()
    tests = [entry for entry in found if not entry[0]]
    first = found[0]
    last = tests[-1] if len(tests) > 1 else found[-1]
    run.first = _evaluation(first[2], first[1], run.problems)
    if last != first:
        run.last = _evaluation(last[2], last[1], run.problems)


def _evaluation(file: Path, iteration: int, problems: list[str]) -> Evaluation:
    episodes = []
    for number, episode in _lines(file, problems):
        if is_episode(episode):
            episodes.append(episode)
        else:
            problems.append(f"episodes/{file.name}, line {number}, is not an episode and is left out.")
    return Evaluation(file.stem, file.stem.partition("_")[0], iteration, episodes)


def is_episode(value: Mapping[str, Any]) -> bool:
    """Whether ``value`` has what an episode's line must have, in the right types."""
    return _fits(value, EPISODE_KEYS) and all(
        isinstance(message, dict) and _fits(message, MESSAGE_KEYS) for message in value["messages"]
    )


def numeric(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def interval(value: object) -> tuple[float, float] | None:
    """(Low, high) where ``value`` is a pair of finite numbers."""
    if isinstance(value, list) and len(value) == 2 and all(map(numeric, value)):
        return value[0], value[1]
    return None


def _fits(value: Mapping[str, Any], kinds: Mapping[str, type]) -> bool:
    return all(isinstance(value.get(key), kind) for key, kind in kinds.items())


def _object(file: Path, problems: list[str]) -> dict[str, Any]:
    """A JSON object, or an empty one and a problem."""
    if not file.is_file():
        problems.append(f"{file.name} is missing.")
        return {}
    try:
        value = json.loads(_text(file))
    except json.JSONDecodeError as error:
        problems.append(f"{file.name} is not whole JSON ({error}).")
        return {}
    if not isinstance(value, dict):
        problems.append(f"{file.name} holds no JSON object.")
        return {}
    return value


def _lines(file: Path, problems: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(Line number from 1, JSON object) of what is whole; the rest are problems."""
    where = f"{file.parent.name}/{file.name}" if file.parent.name == "episodes" else file.name
    if not file.is_file():
        problems.append(f"{where} is missing.")
        return
    for number, line in enumerate(_text(file).split("\n"), 1):  # not splitlines: texts may hold other line ends
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            value = None
        if isinstance(value, dict):
            yield number, value
        else:
            problems.append(f"{where}, line {number}, is not a whole JSON object and is left out.")


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")
