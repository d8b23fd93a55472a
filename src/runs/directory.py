"""The run directory: what a run leaves behind, each file written whole or not at all."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from .fingerprint import code_hash
from .lock import Lock

log = logging.getLogger(__name__)

PACKAGES = ("troupe", "torch", "transformers", "tokenizers", "lightning", "hydra-core", "numpy")


class RunDirectoryError(ValueError):
    """A run directory that cannot take this run."""


class RunDirectory:
    """``config.yaml``, ``versions.json``, ``metrics.jsonl``, ``summary.json``, ``episodes/`` and ``checkpoints/``.

    It is locked until :meth:`release`, so that no two processes train in it.  Raises :class:`RunDirectoryError` where
    ``path`` already holds a run, or something else.
    """

    def __init__(self, path: Path, config_yaml: str) -> None:
        check_free(path)
        self.path = path
        self.checkpoints = path / "checkpoints"
        _claim(path)
        self._lock: Lock | None = _locked(path)
        self.checkpoints.mkdir()
        write_atomic(path / "config.yaml", config_yaml)
        write_atomic(path / "versions.json", json.dumps(versions(), indent=2) + "\n")
        (path / "metrics.jsonl").touch()

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """The directory of a run that is to be continued.  Changes nothing of the run; :meth:`rewind` does.

        Raises :class:`.lock.HeldError` where a process trains in it.
        """
        directory = cls.__new__(cls)
        directory.path, directory.checkpoints, directory._lock = path, path / "checkpoints", _locked(path)
        return directory

    def release(self) -> None:
        """Let others train here."""
        if self._lock is not None:
            self._lock.release()

    def rewind(self, iterations: int, config_yaml: str, summary: Mapping[str, Any]) -> None:
        """Go back to the end of iteration ``iterations``: later rows of metrics go, the configuration is replaced.

        Where packages differ from those that the run began with, ``versions_NNNNN.json`` says what it goes on with.
        Raises :class:`RunDirectoryError` where ``metrics.jsonl`` lacks an earlier row; nothing is changed then.
        """
        rows = _rows(self.path / "metrics.jsonl", iterations)
        write_atomic(self.path / "metrics.jsonl", "".join(line + "\n" for line in rows))
        write_atomic(self.path / "config.yaml", config_yaml)
        self.summary(summary)
        text = json.dumps(versions(), indent=2) + "\n"
        began = self.path / "versions.json"
        if not began.exists() or began.read_text() != text:
            write_atomic(self.path / f"versions_{iterations:05d}.json", text)
            log.warning("versions differ from those that the run began with: see versions_%05d.json", iterations)

    def finished(self) -> bool:
        """Whether the run that lies here came to its end."""
        path = self.path / "summary.json"
        return path.exists() and json.loads(path.read_text()).get("status") == "finished"

    def metrics(self, row: Mapping[str, Any]) -> None:
        """Append one iteration's metrics."""
        append_line(self.path / "metrics.jsonl", row)

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Replace the run's summary."""
        write_atomic(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")

    def episodes(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write sample episodes under ``episodes/NAME.jsonl``."""
        write_atomic(self.path / "episodes" / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


class ReadOnlyRunDirectory(RunDirectory):
    """The run directory as processes other than the first see it: nothing is written."""

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints, self._lock = path, path / "checkpoints", None

    def metrics(self, row: Mapping[str, Any]) -> None:
        pass

    def summary(self, summary: Mapping[str, Any]) -> None:
        pass

    def episodes(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        pass


def check_free(path: Path) -> None:
    """Raise :class:`RunDirectoryError` where ``path`` holds a run, or something else."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        what = "already holds another run" if (path / "config.yaml").exists() else "is not an empty folder"
        raise RunDirectoryError(f"run_dir={path} {what}; choose another, nothing was changed")


def _claim(path: Path) -> None:
    """Make ``path`` this run's.  Of several processes that find it free at once, one makes ``episodes``: mkdir either
    makes a folder or fails, so that nobody else does.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "episodes").mkdir()
    except FileExistsError as error:
        raise RunDirectoryError(f"run_dir={path} was just claimed by another run; choose another") from error
    except OSError as error:
        raise RunDirectoryError(f"run_dir={path} cannot be made: {error}") from error


def _locked(path: Path) -> Lock:
    return Lock(path / "lock", str(path))


def _rows(path: Path, count: int) -> list[str]:
    """The lines of iterations 1 to ``count``."""
    lines = path.read_text(encoding="utf-8").split("\n")[:count] if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            iteration = json.loads(line)["iteration"]
        except (ValueError, KeyError, TypeError):
            iteration = "nothing that can be read"
        if iteration != number:
            raise RunDirectoryError(f"{path}, line {number}: expected iteration {number}, found {iteration}")
    if len(lines) < count:
        raise RunDirectoryError(f"{path} ends after iteration {len(lines)}, the checkpoint is of iteration {count}")
    return lines


def write_atomic(path: Path, text: str) -> None:
    """Write through a temporary neighbour, so that a reader or a crash never meets half a file."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:  # a full disk is not reported with the file's name
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


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
