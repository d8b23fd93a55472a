"""The yaml of a sweep or a table, as plain data."""

from __future__ import annotations

from importlib.resources.abc import Traversable
from typing import Any

import yaml

from ..errors import ConfigError


def read_yaml(file: Traversable) -> Any:
    """The content of ``file``.  Raises :class:`ConfigError`, in one line, where it is no YAML, or no text in UTF-8, or
    has a key twice."""
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"not text in UTF-8: {error}") from error
    except (
        ValueError,
        OverflowError,
        RecursionError,
        yaml.YAMLError,
    ) as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}") from error


class _Loader(yaml.SafeLoader):
    """Of two equal keys the last would win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if twice := next((name for place, name in enumerate(names) if name in names[:place]), ""):
            raise yaml.YAMLError(f"key '{twice}' is there twice, line {node.start_mark.line + 1} and below")
        content: dict[Any, Any] = super().construct_mapping(node, deep)
        return content
