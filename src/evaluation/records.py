"""Finished evaluations on disk: written whole or not at all, and found again by what was asked.

A folder holds ``config.yaml`` (what was asked), ``summary.json`` (metrics by condition), ``results.jsonl`` (one line an
episode), ``versions.json`` and ``episodes/`` (whole episodes of the first tasks).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..runs.directory import versions, write_atomic


class EvaluationError(ValueError):
    """An evaluation that is not there, is damaged, or whose name is taken."""


@dataclass(frozen=True)
class Evaluation:
    """A finished evaluation: its folder, the hash of what was asked, and metrics by condition."""

    path: Path
    fingerprint: str
    conditions: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Evaluation:
        """Raises :class:`EvaluationError` where ``path`` holds no evaluation, or a damaged one."""
        file = path / "summary.json"
        if not file.is_file():
            raise EvaluationError(f"{path} holds no evaluation: no summary.json in it")
        try:
            summary = json.loads(file.read_text())
            return cls(path, summary["fingerprint"], summary["conditions"])
        except (ValueError, KeyError, TypeError) as error:
            raise EvaluationError(f"{file} is not the summary of an evaluation: {error!r}") from error

    def successes(self, condition: str) -> dict[str, list[bool]]:
        """Task -> success of each sample, in the order in which the tasks were drawn.

        Raises :class:`EvaluationError` where the results are damaged or have no such condition.
        """
        found: dict[str, list[bool]] = {}
        for row in self.rows():
            if row["condition"] == condition:
                found.setdefault(row["task_id"], []).append(bool(row["success"]))
        if not found:
            raise EvaluationError(f"{self.path} has no condition '{condition}'; it has {', '.join(self.conditions)}")
        return found

    def rows(self) -> list[dict[str, Any]]:
        """The lines of ``results.jsonl``.  Raises :class:`EvaluationError`."""
        file = self.path / "results.jsonl"
        try:
            return [json.loads(line) for line in file.read_text().splitlines()]
        except (OSError, ValueError) as error:
            raise EvaluationError(f"{file} cannot be read: {error}") from error


def fingerprint(asked: Mapping[str, Any]) -> str:
    """The hash of what was asked: 12 hexadecimal digits of the SHA-256 of its canonical JSON."""
    return sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]


def find(parent: Path, wanted: str) -> Evaluation | None:
    """The finished evaluation under ``parent`` that has this fingerprint."""
    for file in sorted(parent.glob("*/summary.json")):
        evaluation = Evaluation.read(file.parent)
        if evaluation.fingerprint == wanted:
            return evaluation
    return None


def check_name(parent: Path, name: str, wanted: str) -> None:
    """Refuse a name that another evaluation has, and one that is no folder's name.  Raises :class:`EvaluationError`."""
    if Path(name).name != name or name.startswith("."):
        raise EvaluationError(f"name={name} must be the name of a folder")
    folder = parent / name
    if folder.exists() and Evaluation.read(folder).fingerprint != wanted:
        raise EvaluationError(f"name={name}: {folder} already holds another evaluation; nothing was changed")


def write(
    folder: Path,
    wanted: str,
    config_yaml: str,
    summary: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    episodes: Mapping[str, Iterable[Mapping[str, Any]]],
) -> Evaluation:
    """Write an evaluation through a temporary neighbour; ``folder`` is replaced where it exists.

    ``summary`` has the metrics by condition under ``conditions``; ``episodes`` are whole episodes by file name.
    """
    temporary, old = folder.with_name(f".{folder.name}.tmp"), folder.with_name(f".{folder.name}.old")
    for leftover in (temporary, old):
        shutil.rmtree(leftover, ignore_errors=True)
    (temporary / "episodes").mkdir(parents=True)
    write_atomic(temporary / "config.yaml", config_yaml)
    write_atomic(temporary / "versions.json", json.dumps(versions(), indent=2) + "\n")
    write_atomic(temporary / "results.jsonl", _lines(rows))
    for name, played in episodes.items():
        write_atomic(temporary / "episodes" / f"{name}.jsonl", _lines(played))
    write_atomic(temporary / "summary.json", json.dumps({"fingerprint": wanted, **summary}, indent=2) + "\n")
    if folder.exists():
        os.replace(folder, old)
    os.replace(temporary, folder)
    shutil.rmtree(old, ignore_errors=True)
    return Evaluation.read(folder)


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
