"""Finds secrets among settings that a run writes to its files and loggers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

_NAMES = re.compile(
    r"(^|_)(api_?key|key|access_?key|secret|secret_?key|private_?key|password|passwd|passphrase|credentials?|auth|"
    r"authorization|bearer|cookie|x_api_key|(api|access|auth|id|refresh|session|bearer)_?token|token|jwt)$",
    re.IGNORECASE,
)
"""Names of keys whose text is a secret; ``stop_token_ids`` and ``prompt_cache_key`` have other words or no secret."""
_HARMLESS = {"prompt_cache_key"}
_VALUES = re.compile(
    r"(Bearer|Basic) \S+|(sk|pk|rk|hf|gsk|xai|nvapi|ghp|gho|glpat|pplx|r8)[-_][\w-]{16,}|AIza[\w-]{30,}|AKIA\w{16}|"
    r"eyJ[\w-]+\.[\w-]+\.[\w-]+",
    re.ASCII,
)
"""Texts in the forms in which vendors write their keys."""
_SHORTEST = 8
"""Characters of a secret in the environment; shorter values may stand anywhere by chance."""


def secrets(settings: Mapping[str, Any]) -> Iterator[str]:
    """The keys, with dots, of the texts in ``settings`` that look like secrets.

    Such are texts under a secret's name, in the form of a vendor's key, or equal to a variable of the environment with
    a secret's name (which ``${oc.env:NAME}`` inserts).
    """
    known = {value for name, value in os.environ.items() if _is_secret_name(name) and len(value) >= _SHORTEST}
    pending: list[tuple[str, str, Any]] = [(str(key), str(key), value) for key, value in settings.items()]
    while pending:
        path, name, value = pending.pop()
        if isinstance(value, Mapping):
            pending += [(f"{path}.{key}", str(key), inner) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            pending += [(f"{path}.{index}", name, inner) for index, inner in enumerate(value)]
        elif (
            isinstance(value, str)
            and value
            and (_is_secret_name(name) or _VALUES.search(value) or any(each in value for each in known))
        ):
            yield path


def _is_secret_name(name: str) -> bool:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", name)
    return words not in _HARMLESS and _NAMES.search(words) is not None
