"""One checkpoint: a folder that is complete or not there, and from which training continues to the bit.

::

    iteration_00010/
      POLICY/             the weights (of a LoRA policy its adapter) and the tokenizer as ``from_pretrained`` reads them
      POLICY/training.pt  optimizer, scheduler, version (of sharded ones training_00000.pt, ..., one per process)
      critics/NAME/training.pt  a critic's weights, optimizer, version
      rng.pt              torch's random states
      state.json          what the loop counts, and the configuration that matters
      checksums.json      the sha256 of every other file
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from ...cluster.actors import LostActorError
from ...errors import unwritten
from ...runs.bounded import is_within
from ...runs.files import read_object
from ..bases.reading import read_states, reading
from ..learning.ranks import OtherRankError, Ranks
from .handles import CriticHandle, PolicyHandle
from .pool import TRAINING

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
