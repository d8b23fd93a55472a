"""Build objects from sections of the configuration; every error names its key."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import partial
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hydra._internal.utils import _locate  # `get_object` also logs the error
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from ..errors import ConfigError
from .arguments import below, check_arguments, check_complete, check_known, check_types
from .own_errors import own_error

T = TypeVar("T")


def construct(key: str, kind: type[T], section: Any) -> T:
    """``kind(**section)``; a field of a dataclass whose type is a dataclass is built from the section below it.

    A class with a class method ``read(key, section)`` is built by that.  Raises :class:`ConfigError` naming a key that
    is unknown, missing or wrong.
    """
    if not isinstance(section, Mapping):
        raise ConfigError(f"{key} must hold keys, got {section!r}")
    if (read := getattr(kind, "read", None)) is not None:
        return read(key, section)
    return construct_plainly(key, kind, section)


def construct_plainly(key: str, kind: type[T], section: Mapping[str, Any]) -> T:
    """:func:`construct` without ``kind.read``."""
    check_arguments(key, kind, section)
    check_types(key, kind, section)
    hints = get_type_hints(kind) if is_dataclass(kind) else {}
    values = {name: _value(below(key, name), hints.get(name, Any), value) for name, value in section.items()}
    return call(key, kind, **values)


def _value(key: str, hint: Any, value: Any) -> Any:
    """``value`` converted to the type ``hint`` of a field, if it is a section; the dataclass checks other values."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if isinstance(value, tuple(kind for kind in kinds if isinstance(kind, type) and kind is not Any)):
        return value
    for kind in kinds:
        if is_dataclass(kind):
            return construct(key, kind, value)  # type: ignore[arg-type]
        if get_origin(kind) is Mapping:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{key} must hold keys, got {value!r}")
            return {name: _value(below(key, name), get_args(kind)[1], each) for name, each in value.items()}
        if get_origin(kind) is tuple and isinstance(value, list):
            return tuple(value)
    return value


def instantiated(key: str, node: Mapping[str, Any]) -> Any:
    """Hydra's ``instantiate``.  Raises :class:`ConfigError` naming ``key``, or the key below it."""
    _check_targets(key, {"_target_": None, **node})
    try:
        return instantiate(node)
    except InstantiationException as error:
        place = re.search(r"^full_key: (\S+)$", str(error), re.MULTILINE)  # of the node below, where it is one
        raise ConfigError(_refusal(key, error.__cause__ or error, place[1] if place else "")) from error


def part(key: str, node: Mapping[str, Any], attribute: str) -> Any:
    """:func:`instantiated`.  Raises :class:`ConfigError`, too, for an object of another kind, without ``attribute``."""
    made = instantiated(key, node)
    if not hasattr(made, attribute):
        raise ConfigError(f"{key}._target_={node['_target_']}: a {type(made).__name__} cannot stand here")
    return made


def partially(key: str, node: Mapping[str, Any]) -> Callable[..., Any]:
    """``node`` as a function of the arguments that a configuration cannot contain; errors name ``key``."""
    return partial(_complete, key, instantiated(key, {**node, "_partial_": True}))


def call(key: str, target: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """``target(*arguments, **keywords)``.  Raises :class:`ConfigError` naming ``key`` for a TypeError or ValueError."""
    try:
        return target(*arguments, **keywords)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(_refusal(key, error)) from error


def _complete(key: str, target: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    check_complete(key, target, keywords, len(arguments))
    return call(key, target, *arguments, **keywords)


def _check_targets(key: str, node: Any) -> None:
    """Check ``_target_`` and its arguments in ``node`` and in all nodes below it."""
    if isinstance(node, list):
        for index, each in enumerate(node):
            _check_targets(f"{key}[{index}]", each)
    if not isinstance(node, Mapping):
        return
    if "_target_" in node:
        if (path := node["_target_"]) is None:
            raise ConfigError(f"{key}._target_ is missing: the name of a class")
        try:
            target = _locate(path)
        except Exception as error:  # importing a module may raise any
            reason = " ".join(str(error).split())
            raise ConfigError(f"{key}._target_={path} cannot be imported: {reason}") from error
        if not callable(target):
            raise ConfigError(f"{key}._target_={path} is a {type(target).__name__}, which cannot be called")
        names = [name for name in node if not name.startswith("_")]
        check_known(key, target, names)
        check_types(key, target, {name: node[name] for name in names if not _is_node(node[name])})
        if not node.get("_partial_") and "_args_" not in node:
            check_complete(key, target, names)
    for name, each in node.items():
        _check_targets(f"{key}.{name}", each)


def _is_node(value: Any) -> bool:
    """Whether Hydra makes an object of it."""
    return isinstance(value, Mapping) and "_target_" in value


def _refusal(key: str, error: BaseException, node: str = "") -> str:
    """The error's text, after ``key`` and the ``node`` below it, unless it begins with ``key`` or with a key of the
    world, which is more specific.

    A ``ValueError`` refuses a value; any other error of the user's own code is a fault, and the text has its place.
    """
    text = (None if isinstance(error, ValueError) else own_error(error)) or str(error)
    return text if text.startswith((key, "env.")) else f"{below(key, node) if node else key}: {text}"
