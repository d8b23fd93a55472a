"""The sections ``_world_`` and ``_regime_`` of the files that declare them: read, inherited, and taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import dirname, join, normpath
from typing import Any

from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf, open_dict

from ..errors import ConfigError
from .instantiation import construct
from .regimes import Regime, World, read_world

SECTIONS = {"env/": "_world_", "regime/": "_regime_"}
"""Folder -> the section that its files may have."""


@dataclass(frozen=True)
class Declarations:
    """What the files of ``sources`` declare; of several files with one path, the first counts, as for Hydra."""

    sources: Sequence[ConfigSource]

    def may_declare(self, path: str) -> bool:
        """Whether there is a file ``path`` in a folder whose files may have a section."""
        return path.startswith(tuple(SECTIONS)) and self._source(path) is not None

    def without_section(self, path: str) -> ConfigResult:
        """The file ``path`` as Hydra is to compose it."""
        source = self._source(path)
        assert source is not None  # may_declare
        result = source.load_config(path)
        if isinstance(result.config, DictConfig):
            with open_dict(result.config):
                result.config.pop(_name(path), None)
        return result

    def world(self, name: str) -> World | None:
        """None where the yaml declares nothing.  Raises :class:`ConfigError` naming the key that is wrong."""
        section = self._section(f"env/{name}")
        return read_world(name, section) if section else None

    def regime(self, name: str) -> Regime | None:
        """None for a regime that names its policies itself.  Raises :class:`ConfigError`."""
        section = self._section(f"regime/{name}")
        rule: Regime | None = construct(f"regime={name}: _regime_", Regime, section) if section else None
        return rule

    def _section(self, path: str) -> dict[str, Any]:
        """The section of ``path``, over those of the files that its defaults list lays it over."""
        source = self._source(path)
        if source is None:
            return {}
        file: Any = OmegaConf.to_container(source.load_config(path).config, resolve=False)
        merged = OmegaConf.create()
        for default in file.get("defaults", []):
            if isinstance(default, str) and default != "_self_":
                name, _, package = default.partition("@")
                if package in ("", "_here_"):
                    merged.merge_with(self._section(normpath(join("/", dirname(path), name)).lstrip("/")))
        section = file.get(_name(path))
        if section is not None and not isinstance(section, dict):
            raise ConfigError(f"{path}.yaml: {_name(path)} must hold keys, got {section!r}")
        merged.merge_with(section or {})
        return OmegaConf.to_container(merged, resolve=False)  # type: ignore[return-value]

    def _source(self, path: str) -> ConfigSource | None:
        return next((source for source in self.sources if source.is_config(path)), None)


def _name(path: str) -> str:
    return next(name for folder, name in SECTIONS.items() if path.startswith(folder))
