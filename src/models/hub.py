"""Whether a base model can be loaded, answered in seconds: libraries would try for a minute."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from shutil import disk_usage

from huggingface_hub import HfApi, ModelInfo, constants, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from huggingface_hub.errors import HTTPError as TransportError  # type: ignore[attr-defined]  # the client's own

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
    """Return where ``base`` is a folder, a model of the hub's local cache, or one that the hub offers and that has room
    on the disk.

    Raises :class:`ModelNotFoundError` naming the places that were tried and the remedy.
    """
    if Path(base).is_dir():
        return
    try:
        if isinstance(try_to_load_from_cache(base, "config.json"), str):
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
        raise ModelNotFoundError(
            f"no such folder, not in the hub's cache on this machine, and the hub was not reached ({error}). Give a "
            "local folder in its place, or set HF_HOME to a folder whose cache holds it"
        ) from error
    _check_room(info)


def _check_room(info: ModelInfo) -> None:
    """Raise :class:`ModelNotFoundError` where the disk has less room than the weights need, before any is fetched."""
    weights = [each for each in info.siblings or () if fnmatch(each.rfilename, "model*.safetensors")]
    size, cache = sum(each.size or 0 for each in weights), Path(constants.HF_HUB_CACHE)
    place = next(folder for folder in (cache, *cache.parents) if folder.exists())
    if size > (free := disk_usage(place).free):
        raise ModelNotFoundError(
            f"its weights have {size / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free at {place}. Make room, or "
            "set HF_HOME to a folder on another disk"
        )
