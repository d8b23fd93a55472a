"""The files of a run directory: their names, the version of the layout, and what one of them holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from .bounded import UnreadableError, is_within, lines_of, parse_json, read_content

CONFIG = "config.yaml"
VERSIONS = "versions.json"
METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
SWAPPED = "swapped.json"
SWEEP = "sweep.json"
SEALED = "sealed.json"
REPORT = "report.html"
LOCK = "lock"
PHASE = "phase"
EPISODES = "episodes"
SECONDS = "tree_seconds"
"""Of each prompt of the training trees: apart from them, which do not depend on time."""
TIMES = ("seconds", "waited")
"""Keys of a node that are there, and not in its tree."""
CHECKPOINTS = "checkpoints"
EVALUATIONS = "evaluations"

FORMAT_KEY = "run_format"
"""The key of ``versions.json`` that holds the version of the layout."""

FORMAT = 2
"""The version that this code writes: the names above, the keys of the files, and the classes that ``config.yaml``
names.  Version 1 names no version."""


class RunDirectoryError(ValueError):
    """A run directory that cannot take a run, or cannot be read; the message names the folder or the file."""


def read_object(folder: Path, name: str) -> tuple[dict[str, Any], str]:
    """The keys of the JSON or YAML file ``name`` of the directory ``folder``, and "" or a sentence about the damage,
    with which there are no keys.  A file that does not exist has no keys and no damage.
    """
    try:
        content = read_content(folder, name)
    except FileNotFoundError:
        return {}, ""
    except UnreadableError as error:
        return {}, f"{name} {error}."
    if not isinstance(content, dict):
        return {}, f"{name} holds no keys."
    return content, ""


def read_lines(folder: Path, name: str) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    """(Line number from 1, JSON object) of each whole line of the file ``name``, and a sentence about each line that is
    not whole, or about the file.  A file that does not exist has no lines.
    """
    rows, problems = [], []
    try:
        for number, line in lines_of(folder, name):
            if not line.strip():
                continue
            try:
                value = parse_json(line)
            except ValueError:
                value = None
            if isinstance(value, dict):
                rows.append((number, value))
            else:
                problems.append(f"{name}, line {number}, is not a whole JSON object and is left out.")
    except FileNotFoundError:
        return [], []
    except UnreadableError as error:
        problems.append(f"{name} {error}.")
    return rows, problems


def briefly(problems: Sequence[str]) -> list[str]:
    """Sentences about the lines of one file: of many the first, and how many more there are."""
    more = len(problems) - 1
    return [f"{problems[0].rstrip('.')}; so are {more} more lines."] if more > 2 else list(problems)


def check_links(path: Path) -> None:
    """Raise :class:`RunDirectoryError` for a link that leads out of the run directory ``path``, where Troupe writes,
    removes or copies: what is there would be overwritten, or published.  Also for what is neither file nor folder, such
    as a named pipe, on which a reader waits for ever."""
    below = [
        (path / folder).glob(pattern)
        for folder, pattern in ((CHECKPOINTS, "**/*"), (EVALUATIONS, "*"), (EPISODES, "*"))
    ]
    for entry in chain(path.iterdir(), *below):
        if entry.is_symlink() and not is_within(entry, path):
            raise RunDirectoryError(
                f"{entry} leads out of the run directory, to {entry.readlink()}: Troupe would write there; copy in its "
                "place what belongs to the run"
            )
        if entry.exists() and not entry.is_file() and not entry.is_dir():
            raise RunDirectoryError(f"{entry} is neither a file nor a folder; remove it: a run has no such entry")


def evaluation_folders(folder: Path) -> list[Path]:
    """The finished evaluations in ``folder``, a run directory or that of an untrained team, by name."""
    return sorted(file.parent for file in (folder / EVALUATIONS).glob(f"*/{SUMMARY}") if is_within(file, folder))
