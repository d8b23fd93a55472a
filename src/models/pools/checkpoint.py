"""One checkpoint: a folder that is complete or not there, and from which training continues to the bit.

::

    iteration_00010/
      POLICY/             the weights (of a LoRA policy its adapter) and the tokenizer as ``from_pretrained`` reads them
      POLICY/training.pt  optimizer, scheduler, version (of sharded ones training_00000.pt, ..., one per process)
      critics/NAME/training.pt  a critic's weights, optimizer, version
      rng.pt              torch's random states
      state.json          what the loop counts, and the configuration that matters
      checksums.json      the sha256 of every other file

The checkpoints of a run: how many stay, which is the last, which is the best.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from ...cluster.actors import LostActorError
from ...errors import check_whole, unwritten
from ...runs.bounded import is_within
from ...runs.episodes import has_types
from ...runs.files import read_object
from ..bases.reading import read_states, reading
from ..learning.ranks import OtherRankError, Ranks
from .handles import TRAINING, CriticHandle, PolicyHandle

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHECKSUMS, STATE, RNG, CRITICS = "checksums.json", "state.json", "rng.pt", "critics"
ALONE = Ranks()
NO_CRITICS: Mapping[str, CriticHandle] = MappingProxyType({})


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, or that cannot be continued from; the message names the file."""


def write_checkpoint(
    folder: Path,
    policies: Mapping[str, PolicyHandle],
    tokenizers: Mapping[str, PreTrainedTokenizerBase],
    state: Mapping[str, Any],
    ranks: Ranks = ALONE,
    critics: Mapping[str, CriticHandle] = NO_CRITICS,
) -> None:
    """Write ``folder`` under a temporary name beside it, and rename it: whatever happens, it is complete or not there.

    ``state`` must be fit for JSON; ``ranks`` are the processes that write.  Raises :class:`CheckpointError` where the
    files cannot be written; the temporary folder is removed then.
    """
    temporary = folder.with_name(folder.name + ".tmp")

    def begin() -> None:
        if ranks.first:
            shutil.rmtree(temporary, ignore_errors=True)  # left by a run that was killed
            temporary.mkdir(parents=True)

    def complete() -> None:
        if not ranks.first:
            return
        for name in policies:
            tokenizers[name].save_pretrained(temporary / name)
        for name, critic in critics.items():
            (temporary / CRITICS / name).mkdir(parents=True)
            _save(critic.state_dict(), temporary / CRITICS / name / TRAINING)
        _save(_rng_states(), temporary / RNG)
        versions = {"versions": {name: policy.version for name, policy in policies.items()}}
        (temporary / STATE).write_text(json.dumps({**state, **versions}) + "\n")
        (temporary / CHECKSUMS).write_text(json.dumps(_checksums(temporary), indent=1) + "\n")
        # A rename may reach the disk before the bytes of the files do: after a power cut the folder would be there with
        # empty files.  So first the contents, then the names within the folder, then its own name, then its parent.
        _sync(temporary)
        os.replace(temporary, folder)
        sync_folder(folder.parent)

    try:
        ranks.completed(begin)
        for name, policy in policies.items():
            policy.save(temporary / name)
        ranks.completed(complete)
    # safetensors and torch report a full disk by exceptions of their own.
    except OtherRankError:
        raise
    except LostActorError:  # the pool is not there any more; the checkpoint before is
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = system_error(error) or _write_error(folder.parent) or error
        if isinstance(reason, OSError):
            reason = unwritten(reason, folder)
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(f"{folder} could not be written: {reason}") from error


def system_error(error: Exception) -> OSError | None:
    """The system's error in ``error``, of which safetensors gives words and number; None where there is none."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error)) if isinstance(error, SafetensorError) else None
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


def _write_error(folder: Path) -> OSError | None:
    """Why nothing can be written in ``folder``, where the partly written files still fill the disk."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


def read_state(folder: Path) -> dict[str, Any]:
    """The state of a checkpoint, after every file was checked against its checksum.

    Raises :class:`CheckpointError` naming the file that is missing or damaged.
    """
    listed = read_keys(folder / CHECKSUMS)
    for name, expected in listed.items():
        path = folder / name
        if not is_within(path, folder):
            raise CheckpointError(f"{folder / CHECKSUMS} lists {name}, which is not in {folder}")
        if not path.is_file():
            raise CheckpointError(f"{path} is missing")
        if (actual := _sha256(path)) != expected:
            raise CheckpointError(f"{path} is damaged: sha256 {actual}, expected {expected}")
    if STATE not in listed:
        raise CheckpointError(f"{folder / CHECKSUMS} does not list {STATE}")
    return read_keys(folder / STATE)


def restore(
    folder: Path, policies: Mapping[str, PolicyHandle], critics: Mapping[str, CriticHandle] = NO_CRITICS
) -> None:
    """Bring ``policies``, ``critics`` and torch's random states to where they were.  ``folder`` has passed
    :func:`read_state`.

    Raises :class:`CheckpointError` for a checkpoint of other policies, or of policies of other shapes.
    """
    names = {path.parent.name for path in folder.glob("*/training*.pt")}
    if names != set(policies):
        raise CheckpointError(
            f"{folder} holds the policies {', '.join(sorted(names)) or '(none)'}, the configuration has "
            f"{', '.join(sorted(policies))}"
        )
    for name, policy in policies.items():
        try:
            with reading():
                policy.restore(folder / name)
        except (ValueError, OSError) as error:
            raise CheckpointError(f"{folder / name} does not fit policy '{name}': {error}") from error
    for name, critic in critics.items():
        path = folder / CRITICS / name / TRAINING
        try:
            with reading():
                critic.load_state_dict(read_states(path))
        except (ValueError, OSError) as error:
            raise CheckpointError(f"{path} does not fit critic '{name}': {error}") from error
    try:
        states = read_states(folder / RNG)
        torch.set_rng_state(states["torch"])
        if states["cuda"] and len(states["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(states["cuda"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{folder / RNG} does not hold random states: {error}") from error


def sync_folder(folder: Path) -> None:
    """Make renames within ``folder`` outlast a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rng_states() -> dict[str, Any]:
    """Only dropout draws from torch's own generators; everything else has seeds of its own.

    To ask a GPU that the run does not use would take memory there.
    """
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {"torch": torch.get_rng_state(), "cuda": cuda}


def _save(value: Any, path: Path) -> None:
    with path.open("wb") as file:
        torch.save(value, file)


def read_keys(path: Path) -> dict[str, Any]:
    """The keys of a JSON file of a checkpoint.  Raises :class:`CheckpointError`."""
    content, damage = read_object(path.parent, path.name)
    if damage:
        raise CheckpointError(f"{path} is damaged: {damage}")
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    return content


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _checksums(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in _files(folder)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    """Wait until all files of ``folder``, and then their names, are on the disk."""
    for path in _files(folder):
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    for path in [*(p for p in folder.rglob("*") if p.is_dir()), folder]:
        sync_folder(path)


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
    Those of each ``pools`` iterations are due, too, and all of them stay: opponents play with their weights.
    """

    def __init__(
        self, path: Path, config: Mapping[str, Any], *, every: int = 10, keep: int = 2, pools: Collection[int] = ()
    ) -> None:
        check_whole("loop.checkpoint.every", every, 1)
        check_whole("loop.checkpoint.keep", keep, 1)
        self.path, self.config, self.every, self.keep, self.pools = path, config, every, keep, pools

    def due(self, iteration: int) -> bool:
        return iteration % self.every == 0 or self._in_pool(iteration)

    def _in_pool(self, iteration: int) -> bool:
        return any(iteration % every == 0 for every in self.pools)

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
        or all of them where policies are sharded.  Raises :class:`CheckpointError`, naming the checkpoint
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

        Raises :class:`CheckpointError` with the file that is wrong, and with the newest other checkpoint
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
            if iteration not in needed and not self._in_pool(iteration):
                shutil.rmtree(self.at(iteration))


def _best(folder: Path) -> int:
    """The iteration that was best when ``folder`` was written; its own where none was."""
    state = read_keys(folder / STATE)
    return int(state["iteration"] if state["best_iteration"] is None else state["best_iteration"])
