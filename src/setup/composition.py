"""A source of configurations for Hydra: the policies and the team that a regime makes of a world's agents.

A defaults list has no loops, so that no yaml can contain ``policies.AGENT`` for the agents of any world.  Instead,
``train.yaml`` includes ``_team_: REGIME/SCALE/WORLD``; this source answers with the configuration of
:func:`.declarations.team_config`, and Hydra composes it as if it were a file.  Therefore everything that works for
files works here: ``policies.tool.optimizer.lr=1``, ``policy@policies.tool=[laptop,frozen]``, errors for unknown keys,
``--multirun``, ``--cfg``, ``--config-dir``, ``compose`` in a notebook.  The alternatives do not: overrides added to the
command line exist neither in a notebook nor in the jobs of ``--multirun``, and they would appear among the overrides of
a run; policies added after composition are unknown keys during composition.

In the same way it answers for ``experiment=WORLD_REGIME``, which needs no file where it only chooses these two, and for
``policy=SCALE_WORLD``, where the world declares what its policies have otherwise.

The source is the first of Hydra's search path.  It reads all files through the other sources, each once, and removes
the sections ``_world_`` and ``_regime_``, so that they are not passed to the world.  Importing :mod:`troupe.setup`
registers it, and so does Hydra when it first reads the package ``troupe.configs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from hydra import initialize_config_module
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from ..errors import ConfigError
from .declarations import Declarations, team_config

TEAM, FIGURES, EXPERIMENT, POLICY = "_team_/", "_figures_/", "experiment/", "policy/"


class RegimePath(str):
    """The path of a :class:`RegimeSource`, with the search path that contains it.

    Hydra makes a source of nothing but its path, and adds the user's folders to the search path afterwards.
    """

    search_path: ConfigSearchPath

    @classmethod
    def within(cls, search_path: ConfigSearchPath) -> RegimePath:
        path = cls(f"{RegimeSource.scheme()}://")
        path.search_path = search_path
        return path


class RegimeSource(ConfigSource):
    """``_team_/REGIME/SCALE/WORLD``, ``_figures_/SCALE/FIGURES/WORLD``, ``experiment/WORLD_REGIME``,
    ``policy/SCALE_WORLD``, and all files.
    """

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        assert isinstance(path, RegimePath)
        self._search_path = path.search_path

    @staticmethod
    def scheme() -> str:
        return "troupe"

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return f"{config_path}/" in (EXPERIMENT, POLICY)

    def is_config(self, config_path: str) -> bool:
        if config_path.startswith((TEAM, FIGURES)):
            return True
        return self._declarations().has(config_path) or self._declarations().named_after(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return [] if results_filter == ObjectType.GROUP else list(self._declarations().derived(config_path))

    def load_config(self, config_path: str) -> ConfigResult:
        """Raises :class:`ConfigError` if the world does not declare its agents, the scale, or a solo variant."""
        header = {"package": None if config_path.startswith(POLICY) else "_global_"}
        if config_path.startswith(TEAM):
            config = self._team(*config_path.removeprefix(TEAM).split("/", 2))
        elif config_path.startswith(FIGURES):
            config = self._figures(*config_path.removeprefix(FIGURES).split("/", 2))
        elif (pair := self._declarations().named_after(config_path)) is not None:
            make = self._declarations().policy if config_path.startswith(POLICY) else self._declarations().experiment
            config = make(*pair)
        else:
            return self._declarations().without_section(config_path)
        return ConfigResult(self.provider, self.full_path(), OmegaConf.create(config), header)

    def _team(self, regime: str, scale: str, world: str) -> dict[str, Any]:
        rule = self._declarations().regime(regime)
        if rule is None:
            return {}
        declared = self._declarations().world(world)
        if declared is None:
            raise ConfigError(f"env={world}: its yaml has no _world_, and regime={regime} asks for its agents")
        scales, policies = choices("scale"), choices("policy")
        general = [each for each in scales if each in policies]  # the others are for worlds that declare them
        declares = scale in general or scale not in scales
        return team_config(regime, rule, scale, world, declared, general, others=declares)

    def _figures(self, scale: str, figures: str, world: str) -> dict[str, Any]:
        declared = self._declarations().world(world)
        return {} if declared is None else dict(declared.figures.get(scale, declared.figures.get(figures, {})))

    def _declarations(self) -> Declarations:
        """The declarations in the other sources of the search path."""
        elements = [one for one in self._search_path.get_path() if not isinstance(one.path, RegimePath)]
        return Declarations([source_of(str(one.provider), str(one.path)) for one in elements])


def source_of(provider: str, path: str) -> ConfigSource:
    """The source of a folder of the search path; a path without a scheme is a file's, as in Hydra."""
    plugins: list[Any] = Plugins.instance().discover(ConfigSource)
    kinds = {kind.scheme(): kind for kind in plugins}
    made: ConfigSource = kinds[path.partition("://")[0] if "://" in path else "file"](provider, path)
    return made


class RegimeSearchPath(SearchPathPlugin):
    """Adds :class:`RegimeSource` before the files, and ``folder`` after them."""

    folder: ClassVar[str | None] = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.prepend("troupe", RegimePath.within(search_path))
        if self.folder is not None:
            search_path.append("config-dir", f"file://{Path(self.folder).resolve()}")


def register() -> None:
    """Add :class:`RegimeSource` to the Hydra that is initialised, if any, and to all later ones.

    A launcher that runs a job in this process resets Hydra's registry of plugins; registering twice is harmless.
    """
    OmegaConf.register_new_resolver("by_bfloat16", _by_bfloat16, replace=True)
    for plugin in (RegimeSource, RegimeSearchPath):
        Plugins.instance().register(plugin)
    if GlobalHydra.instance().is_initialized():
        loader = GlobalHydra.instance().config_loader()
        if not any(isinstance(source, RegimeSource) for source in loader.get_sources()):
            RegimeSearchPath().manipulate_search_path(loader.get_search_path())
            loader.get_sources().insert(0, RegimeSource("troupe", RegimePath.within(loader.get_search_path())))


def _by_bfloat16(with_it: str, without: str) -> str:
    """``${by_bfloat16:A,B}``: A where this machine multiplies bfloat16, else B.  Only who asks waits for torch."""
    import torch

    from ..kernels.products import multiplies_bfloat16

    return with_it if torch.cuda.is_available() or multiplies_bfloat16() else without


@contextmanager
def configurations(folder: str | None = None, job_name: str = "app") -> Iterator[None]:
    """A context in which ``hydra.compose`` reads Troupe's configurations, and those of the user's ``folder``.

    Raises :class:`ConfigError` if the folder does not exist.
    """
    if folder is not None and not Path(folder).is_dir():
        reason = "it is a file" if Path(folder).is_file() else "there is no such folder"
        raise ConfigError(f"--config-dir {folder}: {reason}")
    register()
    RegimeSearchPath.folder = folder
    try:
        with initialize_config_module("troupe.configs", job_name, version_base="1.3"):
            yield
    finally:
        RegimeSearchPath.folder = None


def choices(group: str) -> list[str]:
    """The choices of ``group`` in the package ``troupe.configs``, and the experiments that follow from their names;
    empty for an unknown group.
    """
    declarations = Declarations([source_of("main", "pkg://troupe.configs")])
    return sorted({*declarations.names(group), *(declarations.derived(group) if group == "experiment" else ())})


def all_choices(group: str, search_path: Sequence[str] = ()) -> list[str]:
    """The choices of ``group`` in all folders of the Hydra that is initialised, with overrides of ``hydra.searchpath``;
    empty for an unknown group.
    """
    options: list[str] = GlobalHydra.instance().config_loader().get_group_options(group, overrides=list(search_path))
    return options
