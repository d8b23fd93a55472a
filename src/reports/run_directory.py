"""The run directory: what a run leaves behind, each file written whole or not at all."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .fingerprint import code_hash

PACKAGES = ("troupe", "torch", "transformers", "tokenizers", "lightning", "hydra-core", "numpy")


class RunDirectoryError(ValueError):
    """A run directory that cannot take this run."""


class RunDirectory:
    """``config.yaml``, ``versions.json``, ``metrics.jsonl``, ``summary.json``, ``episodes/`` and ``checkpoints/``.

    Raises :class:`RunDirectoryError` where ``path`` already holds a run, or something else.
    """

    def __init__(self, path: Path, config_yaml: str) -> None:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            what = "already holds another run" if (path / "config.yaml").exists() else "is not an empty folder"
            raise RunDirectoryError(f"run_dir={path} {what}; choose another, nothing was changed")
        self.path = path
        self.checkpoints = path / "checkpoints"
        (path / "episodes").mkdir(parents=True)
        self.checkpoints.mkdir()
        write_atomic(path / "config.yaml", config_yaml)
        write_atomic(path / "versions.json", json.dumps(versions(), indent=2) + "\n")
        (path / "metrics.jsonl").touch()

    def metrics(self, row: Mapping[str, Any]) -> None:
        """Append one iteration's metrics."""
        append_line(self.path / "metrics.jsonl", row)

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Replace the run's summary."""
        write_atomic(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")

    def episodes(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write sample episodes under ``episodes/NAME.jsonl``."""
        write_atomic(self.path / "episodes" / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def write_atomic(path: Path, text: str) -> None:
    """Write through a temporary neighbour, so that a reader or a crash never meets half a file."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Append one JSON line, flushed."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()


def versions() -> dict[str, str]:
    """What produced a run: packages, Python, machine, the code's hash, and the commit where it is a git checkout."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    found["code"] = code_hash()
    found["commit"] = _commit(Path(__file__).resolve().parent)
    return found


def _commit(folder: Path) -> str:
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    except FileNotFoundError:  # git is not installed
        return "unknown"
