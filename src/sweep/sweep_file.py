"""The yaml of a sweep, ``configs/sweep/NAME.yaml``, read and checked before anything heavy is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ConfigDict

from ..errors import ConfigError, nearest
from ..setup.command_line import parsed
from ..setup.composition import all_choices
from ..setup.search_path import file_content
from .claims import Claim, check_claims, claim_entries
from .measures import METRICS, READINGS
from .yaml_file import read_yaml, typed, with_base

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
    command line gives the key.  ``evaluations`` are made of each finished run, see :mod:`.again`.  ``verdicts`` are
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
