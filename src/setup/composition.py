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

The user's folders of configurations: those of ``--config-dir``, of ``hydra.searchpath``, and of installed packages
with a Hydra ``SearchPathPlugin``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import yaml
from hydra import initialize_config_module
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from ..errors import ConfigError, no_folder
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
        return (
            []
            if results_filter == ObjectType.GROUP
            else [name for name, *_ in self._declarations().derived(config_path)]
        )

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
    OmegaConf.register_new_resolver("completions_at_once", _completions_at_once, replace=True)
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


def _completions_at_once(tasks: object, k: object, team: Mapping[str, str]) -> int:
    """``${completions_at_once:TASKS,K,TEAM}``: what a rollout has under way, K of each agent and task, within 256 (for
    trees and evaluations, which have more) and 1,024.  What is no number is refused where it belongs.
    """
    counts = (each for each in (tasks, k, len(team)) if isinstance(each, int) and each > 0)
    return max(256, min(1024, math.prod(counts)))


@contextmanager
def configurations(folder: str | None = None, job_name: str = "app") -> Iterator[None]:
    """A context in which ``hydra.compose`` reads Troupe's configurations, and those of the user's ``folder``.

    Raises :class:`ConfigError` if the folder does not exist.
    """
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError(f"--config-dir {folder}: {no_folder(Path(folder))}")
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
    derived = declarations.derived(group) if group == "experiment" else ()
    return sorted({*declarations.names(group), *(name for name, *_ in derived)})


def all_choices(group: str, search_path: Sequence[str] = ()) -> list[str]:
    """The choices of ``group`` in all folders of the Hydra that is initialised, with overrides of ``hydra.searchpath``;
    empty for an unknown group.
    """
    options: list[str] = GlobalHydra.instance().config_loader().get_group_options(group, overrides=list(search_path))
    return options


KEY = "hydra.searchpath"

OTHERS = ("hydra", "main", "troupe", "schema")
"""The providers of Hydra's own configurations and of Troupe's."""


def search_path_words(overrides: Sequence[Override]) -> list[str]:
    """Those of ``overrides`` that give ``hydra.searchpath``."""
    return [str(override.input_line) for override in overrides if override.key_or_group == KEY]


def current_search_path() -> list[str]:
    """The override with which another composition in this process has the ``hydra.searchpath`` of the command."""
    folders = HydraConfig.get().searchpath if HydraConfig.initialized() else []
    return [f"{KEY}=[{','.join(repr(folder) for folder in folders)}]"] if folders else []


def check_folders(overrides: Sequence[Override]) -> None:
    """Check the user's folders in the Hydra that is initialised, with ``hydra.searchpath`` among ``overrides``.

    Raises :class:`ConfigError` for a folder that is not there, and for a file with the name of one of Troupe's files:
    Hydra would read only one of the two.
    """
    for source in _sources(overrides):
        if source.provider in OTHERS:
            continue
        if not source.available():
            raise ConfigError(f"{source.provider}: {_place(source)} is no folder of configurations")
        if twice := sorted(_names_of_both(source)):
            ours = files("troupe.configs") / f"{twice[0]}.yaml"
            more = f" (and {len(twice) - 1} more)" if twice[1:] else ""
            raise ConfigError(
                f"{_place(source)}/{twice[0]}.yaml{more} has the name of Troupe's own {ours}, and only one of the two "
                "would be read; give yours another name"
            )


def file_content(name: str, search_path: Sequence[str]) -> dict[str, Any]:
    """The keys of the file ``NAME.yaml``, one of :func:`all_choices`, without interpolation."""
    sources = _sources([OverridesParser.create().parse_override(word) for word in search_path])
    source = next(source for source in sources if source.is_config(name))
    content = OmegaConf.to_container(source.load_config(name).config, resolve=False)
    if not isinstance(content, dict):
        raise ConfigError(f"{_place(source)}/{name}.yaml must hold keys")
    return content  # type: ignore[return-value]


def _sources(overrides: Sequence[Override]) -> list[ConfigSource]:
    """The sources of files in the Hydra that is initialised, with ``hydra.searchpath`` among ``overrides``."""
    path = GlobalHydra.instance().config_loader().get_search_path().get_path()
    folders = [(str(one.provider), str(one.path)) for one in path if one.provider != "troupe"]
    for override in overrides:
        if override.key_or_group == KEY:
            values = override.value()
            if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
                raise ConfigError(f"{override.input_line}: {KEY} is a list of folders: {KEY}=[FOLDER,...]")
            folders += [(KEY, str(value)) for value in values]
    return [source_of(*folder) for folder in folders]


def user_folders() -> list[Path]:
    """The user's folders that the configuration of this process was composed with."""
    folders = [_folder(source.schema, source.path) for source in _own_sources()]
    return [folder for folder in folders if folder is not None]


def _own_sources() -> list[Any]:
    """The user's sources that the configuration of this process was composed with, as Hydra records them."""
    sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else []
    return [source for source in sources if source.provider not in OTHERS]


def user_configurations() -> tuple[set[str], list[dict[str, Any]]]:
    """The user's packages that add configurations by a plugin or by ``hydra.searchpath``, and the content of the yamls
    in the user's folders."""
    own = _own_sources()
    packages = {source.path.partition(".")[0].partition("/")[0] for source in own if source.schema == "pkg"}
    folders = [folder for source in own if source.schema == "file" and (folder := _folder("file", source.path))]
    contents = [_content(file) for folder in folders for file in sorted(folder.rglob("*.yaml"))]
    return packages - {"troupe"}, [content for content in contents if isinstance(content, dict)]


def _content(file: Path) -> Any:
    """What ``file`` holds; None where it is damaged: where it is used, Hydra says so."""
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8", errors="replace"))
    except yaml.YAMLError:
        return None


def _names_of_both(source: ConfigSource) -> Iterator[str]:
    """The files of Troupe that ``source`` has, too, without ``.yaml``; none where it is Troupe's own folder."""
    ours = Path(str(files("troupe.configs")))
    if _folder(source.scheme(), source.path) == ours.resolve():
        return
    for file in ours.rglob("*.yaml"):
        name = file.relative_to(ours).with_suffix("").as_posix()
        if source.is_config(name):
            yield name


def _folder(scheme: str, path: str) -> Path | None:
    if scheme == "file":
        return Path(path).resolve()
    spec = find_spec(path.replace("/", ".")) if scheme == "pkg" else None
    return Path(spec.submodule_search_locations[0]).resolve() if spec and spec.submodule_search_locations else None


def _place(source: ConfigSource) -> str:
    return source.path if source.scheme() == "file" else source.full_path()
