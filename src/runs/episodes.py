"""The episodes that a run leaves of each of its evaluations, read back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from .files import EPISODES, briefly, read_lines

EPISODE_KEYS = {"task_id": str, "success": bool, "turns": int, "messages": list}
MESSAGE_KEYS = {"turn": int, "agent": str, "saw": str, "said": str}


class EpisodeFile:
    """``episodes/SPLIT_ITERATION.jsonl``, the episodes of one evaluation; they are read when they are first asked for.

    ``name`` is the file's without ``.jsonl``.  ``iteration`` counts the iterations before the evaluation; None for
    ``test_best``, the evaluation of the checkpoint that was best on validation.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.stem
        self.split, _, number = path.stem.partition("_")
        self.iteration = int(number) if number.isdecimal() else None

    @cached_property
    def _content(self) -> tuple[list[dict[str, Any]], list[str]]:
        name = f"{EPISODES}/{self.path.name}"
        lines, problems = read_lines(self.path.parents[1], name)
        episodes = []
        for number, episode in lines:
            if is_episode(episode):
                episodes.append(episode)
            else:
                problems.append(f"{name}, line {number}, is not an episode and is left out.")
        if not lines and not problems:
            problems.append(f"{name} is empty.")
        return episodes, briefly(problems)

    @property
    def episodes(self) -> list[dict[str, Any]]:
        """One dictionary per episode: ``task_id``, ``success``, ``turns``, ``messages`` (what each agent saw, said and
        earned, in order) and, where the world draws itself, ``pictures``."""
        return self._content[0]

    @property
    def problems(self) -> list[str]:
        """Sentences about lines that are left out, or about a file that is empty or a folder."""
        return self._content[1]


def episode_files(run: Path, names: str = r"(test|validation)_(\d+|best)") -> dict[str, EpisodeFile]:
    """By name, in the order in which they were played; the best checkpoint's comes last.  ``names`` is a regular
    expression: a later evaluation has one file per condition.
    """
    files = [EpisodeFile(path) for path in (run / EPISODES).glob("*.jsonl")]
    files = [file for file in files if re.fullmatch(names, file.name)]
    files.sort(key=lambda file: (file.iteration is None, file.iteration or 0, file.split))
    return {file.name: file for file in files}


def is_episode(value: Mapping[str, Any]) -> bool:
    """Whether ``value`` has the keys that an episode must have, with the right types."""
    return has_types(value, EPISODE_KEYS) and all(
        isinstance(message, dict) and has_types(message, MESSAGE_KEYS) for message in value["messages"]
    )


def has_types(value: Mapping[str, Any], types: Mapping[str, Any]) -> bool:
    """Whether ``value`` has these keys, each with a value of its type."""
    return all(isinstance(value.get(key), kind) for key, kind in types.items())
