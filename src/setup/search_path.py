"""The user's folders of configurations: those of ``--config-dir``, of ``hydra.searchpath``, and of installed packages
with a Hydra ``SearchPathPlugin``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigSource
from omegaconf import OmegaConf

from ..errors import ConfigError
from .composition import source_of

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
    """The keys of the file ``NAME.yaml``, one of :func:`.composition.all_choices`, without interpolation."""
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
    sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else []
    folders = [_folder(source.schema, source.path) for source in sources if source.provider not in OTHERS]
    return [folder for folder in folders if folder is not None]


def user_configurations() -> tuple[set[str], list[dict[str, Any]]]:
    """The user's packages that add configurations by a plugin or by ``hydra.searchpath``, and the content of the yamls
    in the user's folders."""
    sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else []
    own = [source for source in sources if source.provider not in OTHERS]
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
