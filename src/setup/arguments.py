"""Keys against the arguments of what they configure: an unknown or a missing one is named before anything is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from ..errors import ConfigError
from .unknown import unknown_key

T = TypeVar("T")

KEYWORD = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def construct(key: str, target: Callable[..., T], section: Any) -> T:
    """``target(**section)``.  Raises :class:`ConfigError` naming the key below ``key`` that is unknown or missing."""
    if not isinstance(section, Mapping):
        raise ConfigError(f"{key} must hold keys, got {section!r}")
    check_arguments(key, target, section)
    return target(**section)


def check_arguments(key: str, target: Callable[..., Any], names: Collection[str], partial: bool = False) -> None:
    """Raise :class:`ConfigError` for one of ``names`` that is no argument of ``target``, and for an argument without a
    default that is not among them; with ``partial``, more arguments follow.  ``key`` is the section's.
    """
    parameters = inspect.signature(target).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind in KEYWORD]
    if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        for name in names:
            if name not in known:
                raise unknown_key(f"{key}.{name}", known)
    for parameter in parameters:
        required = parameter.kind in KEYWORD and parameter.default is parameter.empty
        if required and parameter.name not in names and not partial:
            raise ConfigError(f"{key}.{parameter.name} is missing")
