"""Compare the keys of a section with the parameters of the class or function that receives them, without calling it."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..errors import ConfigError
from ..runs.fingerprint import flat, matches
from .unknown import unknown_key

SCALARS: dict[Any, str] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
BOUNDS = ("env", "world", "algorithm.update.clip_norm", "policies.*.algorithm.update.clip_norm")
"""Keys that may be infinite: no bound.  A world may have such keys of its own."""
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


def check_finite(config: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for a NaN in ``config``, and for an infinite number that is not a bound."""
    for key, value in flat(config):
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and (math.isnan(number) or (math.isinf(number) and not matches(key, BOUNDS))):
                raise ConfigError(f"{key} must be a finite number, got {value!r}")


def check_types(key: str, target: Callable[..., Any], section: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` if a value in ``section`` is not of the type that ``target`` declares for it: a whole
    number, a number, a text, or true and false.  Other types are left to ``target``.
    """
    hints = _hints(target)
    for name, value in section.items():
        hint = hints.get(name, Any)
        kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        scalars = [kind for kind in kinds if kind in SCALARS]
        others = [kind for kind in kinds if kind not in (*SCALARS, type(None)) and not _is_tensor(kind)]
        if scalars and not others and not any(is_a(value, kind) for kind in kinds):
            expected = " or ".join(dict.fromkeys(SCALARS[kind] for kind in scalars))
            raise ConfigError(f"{below(key, name)} must be {expected}, got {value!r}")


def is_a(value: Any, kind: type) -> bool:
    """Whether ``value`` is of this type: an int is also a float, a bool neither."""
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float if kind is float else kind)


def _is_tensor(kind: Any) -> bool:
    """Whether ``kind`` is ``torch.Tensor``, which torch's optimizers also take; a configuration has none.  By its name:
    the check must not import torch, which takes seconds.
    """
    return getattr(kind, "__module__", "") == "torch" and getattr(kind, "__name__", "") == "Tensor"


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters of ``target``; none where they cannot be told, as in a class written in C."""
    try:
        is_plain_class = isinstance(target, type) and not is_dataclass(target)
        return get_type_hints(target.__init__ if is_plain_class else target)
    except (NameError, TypeError, AttributeError):  # names that only type checkers import; no function
        return {}


def below(key: str, name: str) -> str:
    """The dotted key of ``name`` in the section ``key``."""
    return f"{key}.{name}" if key else name


def _parameters(target: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of ``target``; any keyword for a function written in C that has no signature."""
    try:
        return list(inspect.signature(target).parameters.values())
    except ValueError:
        return [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]
