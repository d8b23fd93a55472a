"""The files of a run directory: their names, the version of the layout, and how one file is read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

CONFIG = "config.yaml"
VERSIONS = "versions.json"
METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
SWAPPED = "swapped.json"
SEALED = "sealed.json"
REPORT = "report.html"
LOCK = "lock"
EPISODES = "episodes"
CHECKPOINTS = "checkpoints"
EVALUATIONS = "evaluations"

FORMAT_KEY = "run_format"
"""The key of ``versions.json`` that holds the version of the layout."""

FORMAT = 2
"""The version that this code writes: the names above, the keys of the files, and the classes that ``config.yaml``
names.  Version 1 names no version."""


class RunDirectoryError(ValueError):
    """A run directory that cannot take a run, or cannot be read; the message names the folder or the file."""


def parse_yaml(text: str) -> Any:
    """The content of a configuration as plain data, a tree.  Raises ``yaml.YAMLError``."""
    # libyaml is nine times as fast, which a table over hundreds of runs needs; PyYAML may be built without it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # Aliases make a circle, or of a page of text more nodes than memory holds; a resolved configuration has none.
    if "*" in text and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, loader)):
        raise yaml.YAMLError("it has aliases")
    try:
        return yaml.load(text, loader)
    except (ValueError, OverflowError, RecursionError) as error:  # numbers, dates and depths that Python does not have
        raise yaml.YAMLError(str(error)) from error


def parse_json(text: str) -> Any:
    """The content of a JSON text.  Raises ``ValueError``, also for numbers and depths that Python does not have."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from error


def read_object(file: Path) -> tuple[dict[str, Any], str]:
    """The keys of a JSON or YAML file, and "" or a sentence about the damage, with which there are no keys.

    A file that does not exist has no keys and no damage.
    """
    if not file.is_file():
        return {}, f"{file.name} is a folder, not a file." if file.is_dir() else ""
    text = read_text(file)
    try:
        content = parse_yaml(text) if file.suffix == ".yaml" else parse_json(text)
    except yaml.YAMLError as error:
        return {}, f"{file.name} cannot be read (not YAML: {str(error).splitlines()[0]})."
    except ValueError as error:
        return {}, f"{file.name} is not whole JSON ({error})."
    if not isinstance(content, dict):
        return {}, f"{file.name} holds no keys."
    return content, ""


def read_lines(file: Path, name: str) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    """(Line number from 1, JSON object) of each whole line, and a sentence about each line that is not whole.

    ``name`` is what the sentences call the file.  A file that does not exist has no lines.
    """
    if not file.is_file():
        return [], [f"{name} is a folder, not a file."] if file.is_dir() else []
    rows, problems = [], []
    for number, line in enumerate(read_text(file).split("\n"), 1):  # not splitlines: texts may hold other line ends
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
    return rows, problems


def briefly(problems: Sequence[str]) -> list[str]:
    """Sentences about the lines of one file: of many the first, and how many more there are."""
    more = len(problems) - 1
    return [f"{problems[0].rstrip('.')}; so are {more} more lines."] if more > 2 else list(problems)


def check_links(path: Path) -> None:
    """Raise :class:`RunDirectoryError` for a link that leads out of the run directory ``path``, where Troupe writes,
    removes or copies: what is there would be overwritten, or published.  Also for what is neither file nor folder, such
    as a named pipe, on which a reader waits for ever."""
    inside = path.resolve()
    below = [
        (path / folder).glob(pattern)
        for folder, pattern in ((CHECKPOINTS, "**/*"), (EVALUATIONS, "*"), (EPISODES, "*"))
    ]
    for entry in chain(path.iterdir(), *below):
        if entry.is_symlink() and not entry.resolve().is_relative_to(inside):
            raise RunDirectoryError(
                f"{entry} leads out of the run directory, to {entry.readlink()}: Troupe would write there; copy in its "
                "place what belongs to the run"
            )
        if entry.exists() and not entry.is_file() and not entry.is_dir():
            raise RunDirectoryError(f"{entry} is neither a file nor a folder; remove it: a run has no such entry")


def read_text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def evaluation_folders(folder: Path) -> list[Path]:
    """The finished evaluations of ``folder``, a run directory or that of an untrained team, by name."""
    return sorted(file.parent for file in (folder / EVALUATIONS).glob(f"*/{SUMMARY}"))
