"""What of an evaluation has been played: each sample of a condition in a file, until the whole is written.

An evaluation that is interrupted, or that the system ends, goes on after its last whole sample.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..runs.bounded import json_lines
from ..runs.directory import write_atomic
from .episodes import EpisodeResult

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlayedSample:
    """One episode of each task of a condition, in the order of the tasks; it took ``seconds``.

    ``messages`` and ``cut`` count by agent all messages, and those that ended at the most tokens of a completion.
    """

    episodes: list[EpisodeResult]
    seconds: float
    messages: Mapping[str, int]
    cut: Mapping[str, int]


@dataclass(frozen=True)
class PartialEvaluation:
    """The samples of an evaluation in ``folder``, which need not exist; None: none is kept."""

    folder: Path | None = None

    def read(self, condition: int, sample: int, tasks: Sequence[str]) -> PlayedSample | None:
        """Sample ``sample`` of the ``condition``-th condition, which has these ``tasks``; None where it was not played,
        or its file is damaged.
        """
        file = self._file(condition, sample)
        if file is None or not file.is_file():
            return None
        try:
            head, *lines = json_lines(file.parent, file.name)
            episodes = [EpisodeResult(**line) for line in lines]
            if [episode.task_id for episode in episodes] != list(tasks):
                raise ValueError("it has other tasks")
            counts = ({str(agent): int(count) for agent, count in head[key].items()} for key in ("messages", "cut"))
            return PlayedSample(episodes, float(head["seconds"]), *counts)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("%s is damaged (%s): its episodes are played anew", file, error)
            return None

    def write(self, condition: int, sample: int, played: PlayedSample) -> None:
        """Keep a sample: whole, or not at all."""
        if (file := self._file(condition, sample)) is None:
            return
        head = {"seconds": played.seconds, "messages": dict(played.messages), "cut": dict(played.cut)}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, "".join(json.dumps(line) + "\n" for line in [head, *map(asdict, played.episodes)]))
        except FileNotFoundError:  # another process that plays the same has just ended
            log.warning("%s was not kept: its folder is gone", file)

    @property
    def count(self) -> int:
        """The samples that are kept."""
        return 0 if self.folder is None else len(list(self.folder.glob("*.jsonl")))

    def remove(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, condition: int, sample: int) -> Path | None:
        return None if self.folder is None else self.folder / f"{condition:03}_{sample:05}.jsonl"


NOTHING_KEPT = PartialEvaluation()
