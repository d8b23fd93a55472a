"""Runs as their directories tell them: the index of what was trained, read anew each time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from .directory import RunDirectoryError
from .fingerprint import code_hash, evaluation_keys, training_hash

FINAL = ("eval_before/success", "eval/success", "eval_best/success")
"""The keys of ``summary.json`` that a run has at its end only, all of them."""


@dataclass(frozen=True)
class Run:
    """One run directory.

    ``code`` is the hash of the code that trained it, "" where the run does not tell; the hashes joined by "+" where the
    run was continued with other code (``versions_NNNNN.json``), which is nobody's code of today.
    """

    path: Path
    config: Mapping[str, Any]
    code: str
    summary: Mapping[str, Any]

    @cached_property
    def training(self) -> str:
        return training_hash(self.config)

    @property
    def finished(self) -> bool:
        """It went as far as its configuration says, and was scored."""
        loop = self.config["loop"]
        reached = self.summary.get("iterations", -1) >= loop["iterations"]
        spent = 0 < loop["completions"] <= self.summary.get("train/completions", 0)
        scored = all(key in self.summary for key in FINAL)
        return scored and (reached or spent) and self.summary.get("status") == "finished"

    def stale(self, evaluation: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Why its figures may not be what a run of today would give: "code", and "evaluation" where the run was
        scored otherwise than ``evaluation`` (see :func:`~troupe.runs.fingerprint.evaluation_keys`) asks.
        """
        otherwise = evaluation is not None and evaluation_keys(self.config) != evaluation
        reasons = {"code": self.code != code_hash(), "evaluation": otherwise}
        return tuple(reason for reason, holds in reasons.items() if holds)


def is_run(path: Path) -> bool:
    return all((path / name).is_file() for name in ("config.yaml", "versions.json", "metrics.jsonl"))


def read_config(text: str) -> dict[str, Any]:
    """A resolved configuration from its yaml."""
    config: dict[str, Any] = yaml.safe_load(text)
    return config


def read_run(path: Path) -> Run:
    """The run in ``path``.  Raises :class:`RunDirectoryError` naming the file that cannot be read."""
    if not is_run(path):
        raise RunDirectoryError(f"{path} is not a run directory: it lacks config.yaml, versions.json or metrics.jsonl")
    config = _read(path / "config.yaml")
    summary = _read(path / "summary.json") if (path / "summary.json").exists() else {}
    codes = dict.fromkeys(_read(file).get("code", "") for file in sorted(path.glob("versions*.json")))
    return Run(path, config, "+".join(codes), summary)


def _read(file: Path) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8")
    try:
        content = read_config(text) if file.suffix == ".yaml" else json.loads(text)
    except (yaml.YAMLError, json.JSONDecodeError) as error:
        raise RunDirectoryError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise RunDirectoryError(f"{file} must hold keys, got {type(content).__name__}")
    return content


def find_runs(root: Path) -> Iterator[Run]:
    """Every run below ``root``, in the order of their paths; none where there is no such folder."""
    for folder, below, _ in os.walk(root):
        below.sort()
        if is_run(Path(folder)):
            below.clear()
            yield read_run(Path(folder))


def best_match(runs: Iterable[Run], training: str, evaluation: Mapping[str, Any]) -> Run | None:
    """Of the finished runs with this training hash, the one with the fewest reasons to be stale, then the newest."""
    found = [run for run in runs if run.training == training and run.finished]
    return max(found, key=lambda run: (*_freshness(run, evaluation), run.path.name), default=None)


def _freshness(run: Run, evaluation: Mapping[str, Any]) -> tuple[bool, bool]:
    reasons = run.stale(evaluation)
    return "code" not in reasons, "evaluation" not in reasons
