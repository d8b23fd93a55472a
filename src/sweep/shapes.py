"""What the keys of a sweep's or a table's yaml hold, by the types of the dataclass that is made of them."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..errors import ConfigError
from ..setup.arguments import SCALARS, below, is_a


def with_base(content: Any, read: Callable[[str], dict[str, Any]]) -> Any:
    """``content``, with the keys that it lacks from the sweep that its key ``base`` names, which ``read`` reads.

    Raises :class:`ConfigError` where that one has a base, too.
    """
    if not isinstance(content, dict) or "base" not in content:
        return content
    name = str(content["base"])
    if "base" in (base := read(name)):
        raise ConfigError(f"base={name}: that sweep has a base itself")
    return base | {key: value for key, value in content.items() if key != "base"}


def check_shapes(kind: type, content: Any, key: str = "") -> None:
    """Raise :class:`ConfigError`, naming the key, where ``content`` holds something else than the fields of ``kind``:
    keys, lists, texts, numbers.  Which keys there are, and which literals, is left to ``kind``.
    """
    _check_keys(key, content)
    hints = get_type_hints(kind)
    for name, value in content.items():
        _check(below(key, str(name)), hints.get(name, Any), value)


def _check(key: str, hint: Any, value: Any) -> None:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None and type(None) in kinds:
        return
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    scalars = [kind for kind in kinds if kind in SCALARS]
    if scalars:
        if not any(is_a(value, kind) for kind in scalars):
            raise ConfigError(f"{key} must be {' or '.join(SCALARS[kind] for kind in scalars)}, got {value!r}")
        return
    (kind,) = kinds
    if is_dataclass(kind):
        check_shapes(kind, value, key)  # type: ignore[arg-type]  # a class
    elif get_origin(kind) is Mapping:
        _check_keys(key, value)
        for name, each in value.items():
            if not isinstance(name, str):
                raise ConfigError(f"{key}: a key must be a text, got {name!r}")
            _check(below(key, str(name)), get_args(kind)[1], each)
    elif get_origin(kind) is Sequence:
        if not isinstance(value, list):
            raise ConfigError(f"{key} must be a list, got {value!r}")
        for index, each in enumerate(value):
            _check(f"{key}[{index}]", get_args(kind)[0], each)


def _check_keys(key: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key or 'the file'} must hold keys, got {value!r}")
