"""The yaml of a sweep or a table: plain data, and the dataclass that it describes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib.resources.abc import Traversable
from typing import Any, TypeVar, get_args, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from ..errors import ConfigError
from ..setup.instantiation import unknown_key

Content = TypeVar("Content")


def read_yaml(file: Traversable) -> Any:
    """The content of ``file``.  Raises :class:`ConfigError`, in one line, where it is no YAML, or no text in UTF-8, or
    has a key twice."""
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"not text in UTF-8: {error}") from error
    except (ValueError, OverflowError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}") from error


def with_base(content: Any, read: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """``content``, with the keys that it lacks from the sweep that its key ``base`` names, which ``read`` reads.

    Raises :class:`ConfigError` where that one has a base, too, and where ``content`` has no keys.
    """
    if not isinstance(content, dict):
        raise ConfigError(f"the file must hold keys, got {content!r}")
    if "base" not in content:
        return content
    name = str(content["base"])
    if "base" in (base := read(name)):
        raise ConfigError(f"base={name}: that sweep has a base itself")
    return base | {key: value for key, value in content.items() if key != "base"}


def typed(kind: type[Content], content: Any) -> Content:
    """The dataclass ``kind`` of ``content``, plain data; dataclasses in it, too.

    Raises :class:`ConfigError`, naming the key, for one that is unknown or missing, and for a value of another kind.
    """
    try:
        text = json.dumps(content, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the file must hold plain values under names: {error}") from error
    try:
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise refusal(kind, error) from error


def refusal(kind: type, error: ValidationError) -> ConfigError:
    """One of the mistakes of an ``error`` of pydantic, an unknown key before one that is missing."""
    first = min(error.errors(), key=lambda one: one["type"] != "unexpected_keyword_argument")
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"] if part != "[key]"]
    key = "".join(parts).removeprefix(".")
    if first["type"] == "unexpected_keyword_argument":
        return unknown_key(key, sorted(set(_keys(kind))))
    if first["type"] == "value_error":
        return ConfigError(f"{key}: {first['ctx']['error']}" if key else str(first["ctx"]["error"]))
    if first["type"].startswith("missing"):
        return ConfigError(f"{key} is missing")
    return ConfigError(f"{key}: {first['msg'].replace('Input should', 'it must')}, got {first['input']!r}")


def _keys(hint: Any) -> list[str]:
    """The keys of all dataclasses in ``hint``."""
    own = [field.name for field in fields(hint)] if is_dataclass(hint) else []
    parts = get_type_hints(hint).values() if own else get_args(hint)
    return own + [key for part in parts for key in _keys(part)]


class _Loader(yaml.SafeLoader):
    """Of two equal keys the last would win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if twice := next((name for place, name in enumerate(names) if name in names[:place]), ""):
            raise yaml.YAMLError(f"key '{twice}' is there twice, line {node.start_mark.line + 1} and below")
        content: dict[Any, Any] = super().construct_mapping(node, deep)
        return content
