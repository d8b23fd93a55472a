"""Compare the keys of a section with the parameters of the class or function that receives them, without calling it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

from ..errors import ConfigError
from .unknown import unknown_key

KEYWORD = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_arguments(key: str, target: Callable[..., Any], names: Collection[str]) -> None:
    """:func:`check_known` and :func:`check_complete`, where ``names`` are all arguments of the call."""
    check_known(key, target, names)
    check_complete(key, target, names)


def check_known(key: str, target: Callable[..., Any], names: Collection[str]) -> None:
    """Raise :class:`ConfigError` if ``target`` has no parameter of one of these ``names`` in the section ``key``.

    ``key`` is "" for the whole configuration.
    """
    parameters = _parameters(target)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters if parameter.kind in KEYWORD]
    for name in names:
        if name not in known:
            raise unknown_key(below(key, name), known)


def check_complete(key: str, target: Callable[..., Any], names: Collection[str], positional: int = 0) -> None:
    """Raise :class:`ConfigError` if a parameter without a default is neither in ``names`` nor one of the first
    ``positional`` ones.
    """
    for parameter in _parameters(target)[positional:]:
        required = parameter.kind in KEYWORD and parameter.default is parameter.empty
        if required and parameter.name not in names:
            raise ConfigError(f"{below(key, parameter.name)} is missing")


def below(key: str, name: str) -> str:
    """The dotted key of ``name`` in the section ``key``."""
    return f"{key}.{name}" if key else name


def _parameters(target: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of ``target``; any keyword for a function written in C that has no signature."""
    try:
        return list(inspect.signature(target).parameters.values())
    except ValueError:
        return [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]
