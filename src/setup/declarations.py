"""Read the sections ``_world_`` and ``_regime_`` of configuration files, and remove them from composition."""

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
"""Folder -> the section that its files may contain."""


@dataclass(frozen=True)
class Declarations:
    """The sections in the files of ``sources``.  Of several files with one path the first counts, as in Hydra."""

    sources: Sequence[ConfigSource]

    def may_declare(self, path: str) -> bool:
        """Whether the file ``path`` exists, in a folder whose files may contain a section."""
        return path.startswith(tuple(SECTIONS)) and self._source(path) is not None

    def without_section(self, path: str) -> ConfigResult:
        """The file ``path`` for Hydra to compose."""
        source = self._source(path)
        assert source is not None  # may_declare
        result = source.load_config(path)
        if isinstance(result.config, DictConfig):
            with open_dict(result.config):
                result.config.pop(_name(path), None)
        return result

    def world(self, name: str) -> World | None:
        """None if the yaml has no ``_world_``.  Raises :class:`ConfigError` naming a wrong key."""
        section = self._section(f"env/{name}")
        return read_world(name, section) if section else None

    def regime(self, name: str) -> Regime | None:
        """None if the yaml has no ``_regime_``, but ``policies`` and ``team``.  Raises :class:`ConfigError`."""
        section = self._section(f"regime/{name}")
        rule: Regime | None = construct(f"regime={name}: _regime_", Regime, section) if section else None
        return rule

    def _section(self, path: str) -> dict[str, Any]:
        """The section of ``path``, merged over those of the files of its defaults list."""
        source = self._source(path)
        if source is None:
            return {}
        file: Any = OmegaConf.to_container(source.load_config(path).config, resolve=False)
        if not isinstance(file, dict):
            raise ConfigError(f"{path}.yaml must hold keys, got {file!r}")
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
