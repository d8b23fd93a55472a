"""Finished evaluations on disk: written whole or not at all, and found again by the fingerprint of their request.

A folder holds ``config.yaml`` (the request), ``summary.json`` (metrics by condition), ``results.jsonl`` (one line per
episode), ``versions.json`` and ``episodes/`` (whole episodes of the first tasks).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import no_folder
from ..runs.bounded import json_lines, read_content
from ..runs.directory import write_atomic
from ..runs.files import (
    CONFIG,
    EPISODES,
    EVALUATIONS,
    SUMMARY,
    VERSIONS,
    evaluation_folders,
    read_object,
)
from ..runs.index import is_run

RESULTS = "results.jsonl"


class EvaluationError(ValueError):
    """An evaluation that is not there, is damaged, or whose name is taken."""


@dataclass(frozen=True)
class EvaluationRecord:
    """A finished evaluation: its folder, the fingerprint of its request, metrics by condition, and the seconds that a
    condition took, where they are recorded.
    """

    path: Path
    fingerprint: str
    conditions: Mapping[str, Mapping[str, Any]]
    seconds: Mapping[str, float]

    @classmethod
    def read(cls, path: Path) -> EvaluationRecord:
        """Raises :class:`EvaluationError` where ``path`` holds no evaluation, or a damaged one."""
        file = path / SUMMARY
        if not file.is_file():
            raise EvaluationError(f"{path} holds no evaluation: no {SUMMARY} in it")
        try:
            summary = read_content(path, SUMMARY)
            fingerprint, conditions = summary["fingerprint"], summary["conditions"]
        except (ValueError, KeyError, TypeError) as error:
            raise EvaluationError(f"{file} is damaged ({error!r}); remove {path} to play it again") from error
        if not isinstance(conditions, dict) or not all(isinstance(row, dict) for row in conditions.values()):
            raise EvaluationError(f"{file} is damaged (conditions must hold keys); remove {path} to play it again")
        seconds = {name: summary[key] for name in conditions if isinstance(summary.get(key := f"time/{name}_s"), float)}
        return cls(path, fingerprint, conditions, seconds)

    def successes(self, condition: str) -> dict[str, list[bool]]:
        """Task -> success of each sample that was not lost, in the order in which the tasks were drawn.

        Raises :class:`EvaluationError` where the results are damaged or have no such condition.
        """
        successes: dict[str, list[bool]] = {}
        for row in self.rows():
            if row["condition"] == condition:
                of_task = successes.setdefault(str(row["task_id"]), [])
                of_task += [] if row.get("lost") else [bool(row["success"])]
        if not successes:
            raise EvaluationError(f"{self.path} has no condition '{condition}'; it has {', '.join(self.conditions)}")
        return successes

    def condition(self, name: str | None) -> str:
        """``name``, or the only condition.  Raises :class:`EvaluationError` where it is None and there are several."""
        if name is None and len(self.conditions) > 1:
            names = ", ".join(self.conditions)
            raise EvaluationError(f"{self.path} has several conditions: {names}; name one: FOLDER@CONDITION")
        return name or next(iter(self.conditions))

    @property
    def code(self) -> str:
        """The hash of the code that played it, "" where that is not recorded."""
        return str(read_object(self.path, VERSIONS)[0].get("code", ""))

    def rows(self) -> list[dict[str, Any]]:
        """The lines of ``results.jsonl``.  Raises :class:`EvaluationError`."""
        file = self.path / RESULTS
        if not file.is_file():  # also of a named pipe, on which a reader waits for ever
            raise EvaluationError(f"{file} cannot be read: it is no file")
        try:
            rows = [*json_lines(self.path, RESULTS)]
        except (OSError, ValueError) as error:
            raise EvaluationError(f"{file} cannot be read: {error}") from error
        for number, row in enumerate(rows, 1):
            if not isinstance(row, dict) or not {"condition", "task_id", "success"} <= row.keys():
                raise EvaluationError(f"{file}, line {number}, is no episode: it has no condition, task_id and success")
        return rows


def locate(place: str) -> tuple[EvaluationRecord, str | None]:
    """The evaluation and the condition that ``FOLDER[@CONDITION]`` names.  Raises :class:`EvaluationError`."""
    folder, _, condition = place.partition("@")
    path = Path(folder)
    if not (path / SUMMARY).is_file() or (path / EVALUATIONS).is_dir() or is_run(path):
        folders = evaluation_folders(path)
        if not folders and is_run(path):
            raise EvaluationError(f"the run {path} has no evaluation yet; make one with `troupe eval run={path}`")
        if not folders:
            raise EvaluationError(f"{path}: {'it holds no evaluation' if path.is_dir() else no_folder(path)}")
        if len(folders) > 1:
            raise EvaluationError(f"{path} holds several evaluations; name one of {', '.join(map(str, folders))}")
        path = folders[0]
    evaluation = EvaluationRecord.read(path)
    if condition and condition not in evaluation.conditions:
        raise EvaluationError(f"{path} has no condition '{condition}'; it has {', '.join(evaluation.conditions)}")
    return evaluation, condition or None


def file_name(condition: str) -> str:
    """The name of the file with the episodes of ``condition``."""
    return re.sub(r"[^\w.=-]+", "_", condition)


def fingerprint_of(request: Mapping[str, Any]) -> str:
    """12 hexadecimal digits of the SHA-256 of the canonical JSON of ``request``."""
    return sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:12]


def find(parent: Path, fingerprint: str) -> EvaluationRecord | None:
    """The finished evaluation under ``parent`` that has this fingerprint."""
    for file in sorted(parent.glob(f"*/{SUMMARY}")):
        if file.parent.name.startswith("."):  # not finished yet; another process may be writing it
            continue
        evaluation = EvaluationRecord.read(file.parent)
        if evaluation.fingerprint == fingerprint:
            return evaluation
    return None


def check_name(parent: Path, name: str, fingerprint: str) -> None:
    """Raise :class:`EvaluationError` for a name that another evaluation has, and for one that cannot name a folder."""
    if Path(name).name != name or name.startswith("."):
        raise EvaluationError(f"name={name} must be the name of a folder")
    folder = parent / name
    if folder.exists() and EvaluationRecord.read(folder).fingerprint != fingerprint:
        raise EvaluationError(f"name={name}: {folder} already holds another evaluation; nothing was changed")


def write(
    folder: Path,
    fingerprint: str,
    config_yaml: str,
    summary: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    episodes: Mapping[str, Iterable[Mapping[str, Any]]],
    code: Mapping[str, str],
) -> EvaluationRecord:
    """Write an evaluation through a temporary neighbour; ``folder`` is replaced where it exists.

    ``summary`` has the metrics by condition under ``conditions``; ``episodes`` are whole episodes by file name.
    ``code`` is the content of ``versions.json`` (:func:`..runs.directory.versions`).
    """
    temporary, old = folder.with_name(f".{folder.name}.tmp"), folder.with_name(f".{folder.name}.old")
    for leftover in (temporary, old):
        shutil.rmtree(leftover, ignore_errors=True)
    (temporary / EPISODES).mkdir(parents=True)
    write_atomic(temporary / CONFIG, config_yaml)
    write_atomic(temporary / VERSIONS, json.dumps(code, indent=2) + "\n")
    write_atomic(temporary / RESULTS, _lines(rows))
    for name, lines in episodes.items():
        write_atomic(temporary / EPISODES / f"{name}.jsonl", _lines(lines))
    write_atomic(temporary / SUMMARY, json.dumps({"fingerprint": fingerprint, **summary}, indent=2) + "\n")
    if folder.exists():
        os.replace(folder, old)
    os.replace(temporary, folder)
    shutil.rmtree(old, ignore_errors=True)
    return EvaluationRecord.read(folder)


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
