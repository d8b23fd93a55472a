"""What Hydra reads beside the files of ``configs``: the policies and the team that a regime makes of a world's agents.

A defaults list cannot loop, so that ``policies.AGENT`` cannot be written once for the agents of every world.  Here the
loop is a *source* of Hydra's search path: ``train.yaml`` asks for ``_team_/REGIME/SCALE/WORLD``, this source answers
with the configuration that :mod:`.regimes` makes, and Hydra composes it like any file.  That is why everything that
Hydra does with files holds for it: ``policies.tool.optimizer.lr=1`` and ``policy@policies.tool=[laptop,frozen]``, the
name of an unknown key, ``--multirun``, ``--cfg``, ``--config-dir``, ``compose`` in a notebook.  Words added to the
command line instead would not be there in a notebook, nor for the jobs of ``--multirun``, and would stand in the
overrides that a run reports; policies filled in after composition would be unknown keys while it lasts.

The source stands before all others and takes the sections ``_world_`` and ``_regime_`` out of the files that have them,
so that they are no arguments of the world.  It reads these files, of the package and of ``--config-dir``, through the
other sources.  Importing :mod:`troupe.setup` registers it, and so does Hydra where it reads ``troupe.configs`` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any, ClassVar

from hydra import initialize_config_module
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf, open_dict

from ..errors import ConfigError
from .arguments import construct
from .regimes import Regime, World, read_world, team_config

TEAM = "_team_/"
FIGURES = "_figures_/"
SECTIONS = {"env/": "_world_", "regime/": "_regime_"}
"""Folder -> the section that its files may have, which is for composition alone."""


class TeamSource(ConfigSource):
    """``_team_/REGIME/SCALE/WORLD``, ``_figures_/FIGURES/WORLD``, and the files that declare what these are made of."""

    @staticmethod
    def scheme() -> str:
        return "troupe"

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return False

    def is_config(self, config_path: str) -> bool:
        if config_path.startswith((TEAM, FIGURES)):
            return True
        return config_path.startswith(tuple(SECTIONS)) and _source(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return []

    def load_config(self, config_path: str) -> ConfigResult:
        """Raises :class:`ConfigError` where the world or the regime does not declare what is asked for."""
        if config_path.startswith(TEAM):
            return self._result(_team(*config_path.removeprefix(TEAM).split("/", 2)))
        if config_path.startswith(FIGURES):
            return self._result(_figures(*config_path.removeprefix(FIGURES).split("/", 1)))
        source = _source(config_path)
        assert source is not None  # is_config
        result = source.load_config(config_path)
        if isinstance(result.config, DictConfig):
            with open_dict(result.config):
                result.config.pop(_section_name(config_path), None)
        return result

    def _result(self, config: dict[str, Any]) -> ConfigResult:
        return ConfigResult(self.provider, self.full_path(), OmegaConf.create(config), {"package": "_global_"})


class TeamSearchPath(SearchPathPlugin):
    """Puts :class:`TeamSource` before the files, and ``folder`` after them."""

    folder: ClassVar[str | None] = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.prepend("troupe", f"{TeamSource.scheme()}://")
        if self.folder is not None:
            search_path.append("config-dir", f"file://{Path(self.folder).resolve()}")


def register() -> None:
    """Make every Hydra read :class:`TeamSource`: those to be initialised, and the one that is, if any."""
    for plugin in (TeamSource, TeamSearchPath):
        Plugins.instance().register(plugin)
    if GlobalHydra.instance().is_initialized():
        loader = GlobalHydra.instance().config_loader()
        TeamSearchPath().manipulate_search_path(loader.get_search_path())
        loader.get_sources().insert(0, TeamSource("troupe", f"{TeamSource.scheme()}://"))


@contextmanager
def configurations(folder: str | None = None) -> Iterator[None]:
    """``hydra.compose`` reads Troupe's configurations here, and those of the user's ``folder``."""
    TeamSearchPath.folder = folder
    try:
        with initialize_config_module("troupe.configs", version_base="1.3"):
            yield
    finally:
        TeamSearchPath.folder = None


def choices(group: str) -> list[str]:
    """The files of a folder of the package ``configs``: what ``group=`` may be; none where there is no such folder."""
    folder = files("troupe.configs") / group
    if not folder.is_dir():
        return []
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def _team(regime: str, scale: str, world: str) -> dict[str, Any]:
    """Nothing for a regime that names its policies itself."""
    section = _section(f"regime/{regime}")
    if not section:
        return {}
    rule: Regime = construct(f"regime={regime}: _regime_", Regime, section)
    return team_config(regime, rule, scale, world, _world(world))


def _figures(figures: str, world: str) -> dict[str, Any]:
    section = _section(f"env/{world}")
    return dict(read_world(world, section).figures.get(figures, {})) if section else {}


def _world(name: str) -> World:
    section = _section(f"env/{name}")
    if not section:
        raise ConfigError(
            f"env={name}: no _world_ in its yaml: a regime needs _world_.agents and _world_.policies (of a yaml in the "
            "package or in --config-dir)"
        )
    return read_world(name, section)


def _section(path: str) -> dict[str, Any]:
    """The section of the file ``path``, over those of the files that its defaults list lays it over."""
    source = _source(path)
    if source is None:
        return {}
    file: Any = OmegaConf.to_container(source.load_config(path).config, resolve=False)
    found = OmegaConf.create()
    for default in file.get("defaults", []):
        if isinstance(default, str) and default != "_self_":
            name, _, package = default.partition("@")
            if package in ("", "_here_"):
                found.merge_with(_section(normpath(join("/", dirname(path), name)).lstrip("/")))
    found.merge_with(file.get(_section_name(path)) or {})
    return OmegaConf.to_container(found, resolve=False)  # type: ignore[return-value]


def _section_name(path: str) -> str:
    return next(name for folder, name in SECTIONS.items() if path.startswith(folder))


def _source(path: str) -> ConfigSource | None:
    """The source of the file ``path`` among the others of the search path."""
    sources = GlobalHydra.instance().config_loader().get_sources()
    return next((one for one in sources if not isinstance(one, TeamSource) and one.is_config(path)), None)
