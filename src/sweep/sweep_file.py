"""The yaml of a sweep or a table, ``configs/sweep/NAME.yaml``: a dataclass, read and checked before anything heavy is
imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..errors import ConfigError, nearest
from ..setup.command_line import parsed
from ..setup.composition import all_choices, file_content
from ..setup.instantiation import unknown_key
from .claims import Claim, check_claims, claim_entries
from .measures import METRICS, READINGS

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


Overrides = dict[str, list[str]]
"""The key of an override, with its prefix, to one override, or to several that the sweep varies."""


@dataclass(frozen=True)
class Tuning:
    """The grid on which each setting is tuned: key to values.  Each point is run with ``seeds``, whose boards no final
    run has; the one with the highest mean success on validation, after training, is the setting's.  ``overrides`` hold
    for these runs alone.
    """

    grid: Mapping[str, Sequence[Any]]
    seeds: Sequence[int]
    overrides: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.grid or not self.seeds or not all(self.grid.values()):
            raise ConfigError("grid and seeds must name at least one of each")


@dataclass(frozen=True)
class SweepFile:
    """The content of a sweep's yaml.

    ``settings``: name to overrides; each is run with every seed.  ``overrides`` hold for all settings, unless the
    command line gives the key.  ``evaluations`` are made of each finished run, see :mod:`.job`.  ``verdicts`` are
    claims.  ``threshold`` is the success for which the table gives the number of completions.  ``tuning`` runs each
    setting at every point of a grid first.  ``sealed`` is the seed of test tasks that are played once, with
    ``sealed=true``.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    question: str
    settings: Mapping[str, Sequence[str]]
    seeds: Sequence[int]
    overrides: Sequence[str] = ()
    evaluations: Sequence[Literal["swapped"]] = ()
    verdicts: Sequence[Claim] = ()
    threshold: float | None = None
    tuning: Tuning | None = None
    sealed: int | None = None

    @classmethod
    def read(cls, name: str, search_path: Sequence[str] = ()) -> SweepFile:
        """The sweep ``name`` in the Hydra that is initialised, or the yaml at that path.

        Its key ``base`` names a sweep whose keys hold where this one has none.

        Raises :class:`ConfigError` naming the key that is wrong.
        """
        is_file = name.endswith((".yaml", ".yml"))
        if is_file and not Path(name).is_file():
            raise ConfigError(f"sweep={name}: there is no such file")
        content = None if is_file else sweep_content("sweep", name, search_path)
        try:
            content = read_yaml(Path(name)) if is_file else content
            content = with_base(content, lambda base: sweep_content("base", base, search_path))
            return typed(cls, content | {"verdicts": claim_entries("verdicts", content.get("verdicts", []))})
        except ConfigError as error:
            raise ConfigError(f"sweep={name}: {error}") from error

    def __post_init__(self) -> None:
        if not self.settings or not self.seeds:
            raise ConfigError("settings and seeds must name at least one of each")
        for index, claim in enumerate(self.verdicts):
            if claim.parts or claim.not_tested or claim.paper:
                raise ConfigError(f"verdicts[{index}]: parts, not_tested and paper are keys of a table's claims")
        if self.tuning is not None and set(self.tuning.seeds) & set(self.seeds):
            raise ConfigError(
                "tuning.seeds must not be among seeds: what chooses the grid's point cannot judge it, too"
            )
        check_claims("verdicts", self.verdicts, self.settings, (*METRICS, *READINGS))


def sweep_content(key: str, name: str, search_path: Sequence[str] = ()) -> dict[str, Any]:
    """Of the sweep ``name`` in the Hydra that is initialised.  Raises :class:`ConfigError` naming the ``key``."""
    if name not in (known := all_choices("sweep", search_path)):
        raise ConfigError(f"{key}={name} is unknown{nearest(name, known)}")
    try:
        return file_content(f"sweep/{name}", search_path)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{key}={name}: not YAML in UTF-8: {one_line(error)}") from error


def parse_overrides(overrides: Sequence[str], origin: str) -> Overrides:
    """By Hydra's grammar: ``key=a,b`` and ``key=range(3)`` are several overrides.  Errors name the ``origin``."""
    result: Overrides = {}
    for text in overrides:
        try:
            (override,) = parsed([text])
        except ConfigError as error:
            raise ConfigError(f"{origin}{': ' if origin else ''}{error}") from error
        key = override.get_key_element()
        texts = [text]
        if override.is_sweep_override():
            texts = [f"{key}={value}" for value in override.sweep_string_iterator()]
        result[key.lstrip("+") if key.startswith("++") else key] = texts
    return result


def one_line(error: Exception) -> str:
    return re.sub(r"\s*\n\s*", " ", str(error)).strip()
