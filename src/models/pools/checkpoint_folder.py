"""The checkpoints of a run: how many stay, which is the last, which is the best."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ...errors import check_whole
from ...runs.episodes import has_types
from ..learning.ranks import Ranks
from .checkpoint import ALONE, NO_CRITICS, STATE, CheckpointError, read_keys, read_state, sync_folder, write_checkpoint
from .handles import CriticHandle, PolicyHandle

STATE_KEYS = {"iteration": int, "best_iteration": int | None, "config": dict}
"""What every ``state.json`` has."""
FORMAT = 1
"""Of ``state.json``."""
START = "iteration_00000"
"""The checkpoint before the first iteration, which only a run that was interrupted there has."""


class CheckpointFolder:
    """``checkpoints/`` of a run: ``iteration_NNNNN`` folders, and the links ``last`` and ``best``.

    A checkpoint is due ``every`` so many iterations (and where the loop has a reason of its own).  The newest ``keep``
    stay, and of each of these the one that was best by then, so that a run can be continued from any of them.
    ``config`` holds the keys that a continued run must have in common with this one; every checkpoint contains it.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], *, every: int = 10, keep: int = 2) -> None:
        check_whole("loop.checkpoint.every", every, 1)
        check_whole("loop.checkpoint.keep", keep, 1)
        self.path, self.config, self.every, self.keep = path, config, every, keep

    def due(self, iteration: int) -> bool:
        return iteration % self.every == 0

    def write(
        self,
        policies: Mapping[str, PolicyHandle],
        tokenizers: Mapping[str, PreTrainedTokenizerBase],
        state: Mapping[str, Any],
        ranks: Ranks = ALONE,
        critics: Mapping[str, CriticHandle] = NO_CRITICS,
    ) -> None:
        """Write the checkpoint of ``state["iteration"]``, unless it is there, and make it the last.

        ``state["best_iteration"]`` (or None) names the best.  ``ranks`` are the processes that write: the first alone,
        or all of them where policies are sharded.  Raises :class:`.checkpoint.CheckpointError`, naming the checkpoint
        that is still there.
        """
        folder = self.at(state["iteration"])
        try:
            if not ranks.completed(folder.exists):
                whole_state = {"format": FORMAT, **state, "config": self.config}
                write_checkpoint(folder, policies, tokenizers, whole_state, ranks, critics)
            if ranks.first:
                self.point(state)
                self._prune()
        except (CheckpointError, OSError) as error:
            last = self.path / "last"
            left = f"{last.resolve()} is complete" if last.exists() else "there is none yet"
            raise CheckpointError(f"{error}; of the checkpoints before, {left}") from error

    def point(self, state: Mapping[str, Any]) -> None:
        """Point the links ``last`` and ``best`` to the checkpoints that ``state`` names; nowhere at the start."""
        if "iteration" not in state:
            for name in ("last", "best"):
                (self.path / name).unlink(missing_ok=True)
            return
        self._link("last", state["iteration"])
        if state["best_iteration"] is not None:
            self._link("best", state["best_iteration"])
        sync_folder(self.path)

    def at(self, iteration: int) -> Path:
        return self.path / f"iteration_{iteration:05d}"

    def iterations(self) -> list[int]:
        """Of the checkpoints that are there, ascending."""
        matches = (re.fullmatch(r"iteration_(\d{5,})", path.name) for path in self.path.glob("iteration_*"))
        return sorted(int(match[1]) for match in matches if match)

    def state(self, name: str) -> dict[str, Any]:
        """The state of ``last`` or of ``iteration_NNNNN``, after it and the one best by then were checked.  The state
        at :data:`START` is empty where no checkpoint was ever written: the run begins anew.

        Raises :class:`.checkpoint.CheckpointError` with the file that is wrong, and with the newest other checkpoint
        that can be continued from, or with what begins the run anew.
        """
        if name == START and not self.at(0).exists():
            if others := self.iterations():
                raise CheckpointError(
                    f"{self.at(0)} does not exist, and the run is begun anew only where there is no checkpoint: "
                    f"{self.at(others[-1])} is there. Remove {self.path} to begin anew all the same"
                )
            return {"format": FORMAT, "config": dict(self.config)}
        try:
            return self._checked(self.path / name)
        except CheckpointError as error:
            if not self.iterations():
                raise CheckpointError(
                    f"{error}. Nothing can be continued; resume={self.at(0)} begins it anew, in its directory, and a "
                    "smaller loop.checkpoint.every writes the first checkpoint earlier"
                ) from error
            named = (self.path / name).resolve().name
            for iteration in reversed(self.iterations()):
                folder = self.at(iteration)
                if folder.name != named and self._is_complete(folder):
                    raise CheckpointError(f"{error}. Another one is complete: resume={folder}") from error
            raise CheckpointError(f"{error}. No other checkpoint is complete") from error

    def forget_after(self, iteration: int) -> None:
        """Remove later checkpoints: a run that goes on from an earlier one will write them again."""
        for later in self.iterations():
            if later > iteration:
                shutil.rmtree(self.at(later))

    def _checked(self, folder: Path) -> dict[str, Any]:
        if not folder.exists():
            raise CheckpointError(f"{folder} does not exist: the run ended before its first checkpoint, or lost it")
        state = read_state(folder)
        if state.get("format") != FORMAT:
            raise CheckpointError(f"{folder / STATE} has format {state.get('format')}, this Troupe reads {FORMAT}")
        if not has_types(state, STATE_KEYS):
            raise CheckpointError(f"{folder / STATE} is damaged: it needs {', '.join(STATE_KEYS)}")
        if (best := state.get("best_iteration")) not in (None, state["iteration"]):
            read_state(self.at(best))
        return state

    def _is_complete(self, folder: Path) -> bool:
        try:
            self._checked(folder)
        except CheckpointError:
            return False
        return True

    def _link(self, name: str, iteration: int) -> None:
        link, temporary = self.path / name, self.path / f"{name}.tmp"
        if link.is_dir() and not link.is_symlink():  # a run that was copied without its links
            shutil.rmtree(link)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(self.at(iteration).name, target_is_directory=True)
        os.replace(temporary, link)

    def _prune(self) -> None:
        iterations = self.iterations()
        needed = set(iterations[-self.keep :])
        needed |= {_best(self.at(iteration)) for iteration in needed}
        for iteration in iterations:
            if iteration not in needed:
                shutil.rmtree(self.at(iteration))


def _best(folder: Path) -> int:
    """The iteration that was best when ``folder`` was written; its own where none was."""
    state = read_keys(folder / STATE)
    return int(state["iteration"] if state["best_iteration"] is None else state["best_iteration"])
