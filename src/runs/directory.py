"""The run directory as it is written: each file whole or not at all.  :class:`.run.RunReader` reads it back."""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, Self

from ..errors import unwritten
from .bounded import UnreadableError, lines_of, parse_json, parse_yaml
from .episodes import episode_files
from .files import (
    CHECKPOINTS,
    CONFIG,
    EPISODES,
    FORMAT,
    FORMAT_KEY,
    LOCK,
    METRICS,
    SEALED,
    SECONDS,
    SUMMARY,
    SWAPPED,
    TIMES,
    VERSIONS,
    RunDirectoryError,
)
from .fingerprint import code_hash
from .lock import Lock
from .own_code import commits, git
from .trees import thin, tree_files

log = logging.getLogger(__name__)

PACKAGES = {"troupe": "troupe-rl"} | {
    name: name for name in ("torch", "transformers", "tokenizers", "lightning", "hydra-core", "numpy")
}
"""By the name in ``versions.json``, the distribution."""


class RunDirectory:
    """``config.yaml``, ``versions.json``, ``metrics.jsonl``, ``summary.json``, ``episodes/`` and ``checkpoints/``.

    It is locked until :meth:`release`, so that no two processes train in it.  ``folders`` are the user's folders of
    configurations.  Raises :class:`~troupe.runs.files.RunDirectoryError` where ``path`` already holds a run, or
    something else, or cannot be written.
    """

    def __init__(self, path: Path, config_yaml: str, folders: Sequence[Path] = ()) -> None:
        check_free(path)
        self.path, self.folders = path, folders
        self.checkpoints = path / CHECKPOINTS
        try:
            _claim(path)
            self._lock: Lock | None = _locked(path)
            self.checkpoints.mkdir()
            write_atomic(path / CONFIG, config_yaml)
            write_atomic(path / VERSIONS, self._versions(config_yaml))
            (path / METRICS).touch()
        except OSError as error:
            raise RunDirectoryError(f"run_dir={path} cannot be written: {error}") from error

    @classmethod
    def reopen(cls, path: Path, folders: Sequence[Path] = ()) -> Self:
        """The directory of a run that is to be continued.  Changes nothing of the run; :meth:`rewind` does.

        Raises :class:`.lock.HeldError` where a process trains in it.
        """
        directory = cls.__new__(cls)
        directory.path, directory.checkpoints, directory.folders = path, path / CHECKPOINTS, folders
        directory._lock = _locked(path)
        return directory

    def release(self) -> None:
        """Let others train here."""
        if self._lock is not None:
            self._lock.release()

    def rewind(self, iterations: int, config_yaml: str, summary: Mapping[str, Any]) -> None:
        """Go back to the end of iteration ``iterations``: later metrics, evaluations and training trees go, the
        configuration becomes ``config_yaml``.

        Where packages have other versions than at the run's start, ``versions_NNNNN.json`` holds the new ones.  Raises
        :class:`~troupe.runs.files.RunDirectoryError` where ``metrics.jsonl`` lacks an earlier row; nothing is changed
        then.
        """
        rows = _rows(self.path / METRICS, iterations)
        (self.path / EPISODES).mkdir(exist_ok=True)  # which a copy may lack while it is empty
        write_atomic(self.path / METRICS, "".join(line + "\n" for line in rows))
        write_atomic(self.path / CONFIG, config_yaml)
        self.summary(summary)
        self._forget_episodes(iterations)
        if (self.path / VERSIONS).read_text() != (text := self._versions(config_yaml)):
            write_atomic(self.path / f"versions_{iterations:05d}.json", text)
            log.warning("versions differ from those that the run began with: see versions_%05d.json", iterations)

    def _forget_episodes(self, iterations: int) -> None:
        """Remove the evaluations of weights that the run does not end with: of the best ones, of later iterations, and
        what sweeps played with the last ones; and the training trees of later iterations."""
        for file in episode_files(self.path).values():
            if file.iteration is None or file.iteration > iterations:
                file.path.unlink()
        for trees in tree_files(self.path).values():
            if trees.iteration > iterations:  # where a row is still to be written, the last ones have just this number
                trees.path.unlink()
        for name in (SWAPPED, SEALED):
            (self.path / name).unlink(missing_ok=True)

    def _versions(self, config_yaml: str) -> str:
        """The content of ``versions.json``."""
        return (
            json.dumps({FORMAT_KEY: FORMAT, **versions(parse_yaml(config_yaml) or {}, self.folders)}, indent=2) + "\n"
        )

    def check_rows(self, iterations: int) -> None:
        """Raise :class:`RunDirectoryError` where :meth:`rewind` would."""
        if (self.path / EPISODES).is_file():
            raise RunDirectoryError(f"{self.path / EPISODES} is a file, not a folder")
        _rows(self.path / METRICS, iterations)

    def metrics(self, row: Mapping[str, Any]) -> None:
        """Append one iteration's metrics."""
        append_line(self.path / METRICS, row)

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Replace the run's summary."""
        write_atomic(self.path / SUMMARY, json.dumps(summary, indent=2) + "\n")

    def episodes(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write sample episodes under ``episodes/NAME.jsonl``."""
        write_atomic(self.path / EPISODES / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def trees(self, iteration: int, rows: Sequence[Mapping[str, Any]], most_bytes: int) -> int:
        """Write the training trees of an iteration, and remove files of others where all exceed ``most_bytes``; returns
        the bytes written.
        """
        name = f"train_{iteration:05d}"
        times = [{key: [node.get(key) for node in row["nodes"]] for key in TIMES} for row in rows]
        (self.path / SECONDS).mkdir(exist_ok=True)
        write_atomic(self.path / SECONDS / f"{name}.jsonl", "".join(json.dumps(each) + "\n" for each in times))
        untimed = [[{key: node[key] for key in node if key not in TIMES} for node in row["nodes"]] for row in rows]
        self.episodes(name, [{**row, "nodes": nodes} for row, nodes in zip(rows, untimed, strict=True)])
        thin(self.path, most_bytes)
        return (self.path / EPISODES / f"{name}.jsonl").stat().st_size


class ReadOnlyRunDirectory(RunDirectory):
    """The run directory in processes other than the first: nothing is written."""

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints, self._lock = path, path / CHECKPOINTS, None

    def metrics(self, row: Mapping[str, Any]) -> None:
        pass

    def summary(self, summary: Mapping[str, Any]) -> None:
        pass

    def episodes(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        pass

    def trees(self, iteration: int, rows: Sequence[Mapping[str, Any]], most_bytes: int) -> int:
        return 0


def check_free(path: Path) -> None:
    """Raise :class:`~troupe.runs.files.RunDirectoryError` where ``path`` holds a run, or something else, or where it
    cannot be made.
    """
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            content = "already holds another run" if (path / CONFIG).exists() else "is not an empty folder"
            raise RunDirectoryError(f"run_dir={path} {content}; choose another, nothing was changed")
        parent = next(folder for folder in (path, *path.parents) if folder.exists())
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise RunDirectoryError(f"run_dir={path} cannot be made: {error.strerror}") from error
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        reason = "cannot be written in" if parent.is_dir() else "is not a folder"
        raise RunDirectoryError(f"run_dir={path} cannot be made: {parent} {reason}")


def _claim(path: Path) -> None:
    """Make ``path`` the directory of this run.  Several processes may have seen it empty: only one of them can make the
    folder ``episodes``, because mkdir fails where the folder exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / EPISODES).mkdir()
    except FileExistsError as error:
        raise RunDirectoryError(f"run_dir={path} was just claimed by another run; choose another") from error


def _locked(path: Path) -> Lock:
    return Lock(path / LOCK, str(path))


def _rows(path: Path, count: int) -> list[str]:
    """The lines of iterations 1 to ``count``."""
    try:
        lines = [line for _, line in islice(lines_of(path.parent, path.name), count)] if path.exists() else []
    except UnreadableError as error:
        raise RunDirectoryError(f"{path} {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            iteration = parse_json(line)["iteration"]
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
        temporary.unlink(missing_ok=True)  # of a writer that was killed; or a link, which must not be followed
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raised = unwritten(error, path)
        temporary.unlink(missing_ok=True)
        raise raised from error


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Append one JSON line, flushed: whole, or not at all."""
    size = path.stat().st_size if path.exists() else 0
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    except OSError as error:
        raised = unwritten(error, path)
        if path.exists():
            os.truncate(path, size)
        raise raised from error


def versions(config: Mapping[str, Any], folders: Sequence[Path] = ()) -> dict[str, str]:
    """The versions of packages and Python, the machine, the hash of the code that ``config`` runs, the commit of
    Troupe's checkout, and those of the user's code and ``folders`` of configurations, where there are any.
    """
    result = {"python": platform.python_version(), "machine": platform.machine()}
    for name, distribution in PACKAGES.items():
        try:
            result[name] = version(distribution)
        except PackageNotFoundError:
            result[name] = "not installed"
    result["code"] = code_hash(config)
    result["commit"] = _commit(Path(__file__).resolve().parent)
    own = commits(config, folders)
    return result | ({"own_commit": own} if own else {})


def _commit(folder: Path) -> str:
    """The short hash, whatever the tags; `-dirty` where the checkout differs from it."""
    return git(folder, "describe", "--always", "--dirty", "--exclude", "*") or "unknown"
