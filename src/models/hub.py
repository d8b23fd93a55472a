"""Base models that are not shipped: where they are, asked before libraries try for a minute."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from huggingface_hub.errors import HTTPError as TransportError  # type: ignore[attr-defined]  # the client's own

PATIENCE_S = 10.0
"""How long the hub may take to say whether it has a model."""


class ModelNotFoundError(OSError):
    """No such model here, nor at the hub as far as it can be asked."""


def is_here(base: str) -> bool:
    """Whether ``base`` is a folder, or its configuration and tokenizer are in the hub's local cache."""
    if Path(base).is_dir():
        return True
    try:
        files = [try_to_load_from_cache(base, name) for name in ("config.json", "tokenizer_config.json")]
    except ValueError:  # no name of a model
        return False
    return all(isinstance(file, str) for file in files)


def check_there(base: str) -> None:
    """Return where ``base`` is a folder, a model of the hub's local cache, or one that the hub offers.

    Raises :class:`ModelNotFoundError` saying what was tried and what to give instead.
    """
    if Path(base).is_dir():
        return
    try:
        if isinstance(try_to_load_from_cache(base, "config.json"), str):
            return
        HfApi().model_info(base, timeout=PATIENCE_S)
    except ValueError as error:  # no name of a model
        raise ModelNotFoundError(f"no such folder, and no name on the hub either: {error}") from error
    except GatedRepoError as error:
        raise ModelNotFoundError(
            "the hub gives it to those alone who accepted its terms: do so there, then `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNotFoundError("no such folder, and the hub has no such model, or keeps it private") from error
    except (OSError, TransportError) as error:
        raise ModelNotFoundError(
            f"no such folder, not in the hub's cache on this machine, and the hub was not reached ({error}). Give a "
            "local folder in its place, or set HF_HOME to a folder whose cache holds it"
        ) from error
