"""The command line of a sweep and its yaml, read before anything heavy is imported."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from ..errors import ConfigError, nearest
from ..setup.arguments import check_arguments
from ..setup.command_line import check_overrides
from ..setup.composition import all_choices, configurations
from ..setup.search_path import KEY, file_content
from .launcher import LAUNCHERS
from .shapes import check_shapes, with_base
from .yaml_file import read_yaml

Overrides = dict[str, list[str]]
"""The key of an override, with its prefix, to one override, or to several that the sweep varies."""

EVALUATIONS = ("swapped", "sealed")
"""The evaluations that a sweep may make of each finished run; :mod:`.again` makes them."""

KEYS_OF_SWEEP = ("sweep", "launcher", "runs", "rerun_stale", "dry_run", "sealed", "finished", "block")
"""The keys of the command itself."""


@dataclass(frozen=True)
class Options:
    """The keys of the command itself, ``--config-dir``, and ``search_path``, the word that gives ``hydra.searchpath``;
    all other keys configure the runs.

    ``finished`` are summaries whose runs count as finished.  ``block``: of the sweep's seeds those whose runs are made
    now; none: all.
    """

    sweep: str
    launcher: str = "basic"
    runs: str = "runs"
    rerun_stale: bool = False
    dry_run: bool = False
    sealed: bool = False
    finished: tuple[str, ...] = ()
    block: tuple[int, ...] = ()
    config_dir: str | None = None
    search_path: tuple[str, ...] = ()

    @classmethod
    def split(cls, arguments: Sequence[str]) -> tuple[Options, list[str]]:
        """The options, and the other arguments, which are for the runs.  Raises :class:`ConfigError`."""
        parser = ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--config-dir", "-cd")
        flags, arguments = parser.parse_known_args(arguments)
        if wrong := [word for word in arguments if word.startswith("-")]:
            raise ConfigError(f"{wrong[0]} is no option of sweep; it has --config-dir FOLDER, and keys: KEY=VALUE")
        types = {field.name: field.type for field in fields(cls) if field.name in KEYS_OF_SWEEP}
        search_path = tuple(word for word in arguments if word.startswith(f"{KEY}="))
        values: dict[str, Any] = {"config_dir": flags.config_dir, "search_path": search_path}
        others = []
        for argument in arguments:
            key, _, value = argument.partition("=")
            if key not in types:
                others.append(argument)
            elif key in ("finished", "block"):
                values[key] = files_of(value) if key == "finished" else seeds_of(key, value)
            elif types[key] == "bool" and value not in ("true", "false"):
                raise ConfigError(f"{key} must be true or false, got {value!r}")
            else:
                values[key] = value == "true" if types[key] == "bool" else value
        options = cls(**{"sweep": "", **values})
        if not options.sweep:
            with options.configurations():
                names = ", ".join(all_choices("sweep", options.search_path))
            raise ConfigError(f"Which sweep?  sweep=NAME with NAME one of: {names}")
        check_folder("runs", options.runs)
        if options.launcher not in LAUNCHERS:
            raise ConfigError(f"launcher={options.launcher} is unknown{nearest(options.launcher, list(LAUNCHERS))}")
        if options.launcher.startswith("submitit") and not find_spec("submitit"):
            raise ConfigError(f"launcher={options.launcher} needs submitit: pip install -c constraints.txt '.[slurm]'")
        return options, others

    def configurations(self) -> AbstractContextManager[None]:
        """A context with Troupe's configurations and those of the user."""
        return configurations(self.config_dir)

    def check(self, arguments: Sequence[str]) -> None:
        """Check the words of the first run's command line, which takes no second.  Raises :class:`ConfigError`."""
        file = self.file()
        setting, own = next(iter(file.settings.items()))
        words: Overrides = {}
        for overrides, origin in ((file.overrides, "overrides"), (own, f"settings.{setting}"), (arguments, "")):
            words |= parse_overrides(overrides, origin)
        with self.configurations():
            texts = [*self.search_path, *(own[0] for own in words.values())]
            check_overrides("train", texts, own=KEYS_OF_SWEEP, taken=("run_dir", "resume"))

    def file(self) -> SweepFile:
        """The sweep's yaml.  Raises :class:`ConfigError`."""
        with self.configurations():
            return SweepFile.read(self.sweep, self.search_path)


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
            raise ConfigError("tuning.grid and tuning.seeds must name at least one of each")


@dataclass(frozen=True)
class SweepFile:
    """The content of `configs/sweep/NAME.yaml`.

    ``settings``: name to overrides; each is run with every seed.  ``overrides`` hold for all settings, unless the
    command line gives the key.  ``evaluations`` are made of each finished run, see :mod:`.again`.  ``verdicts`` are
    claims, see :class:`~troupe.sweep.verdicts.Claim`.  ``threshold`` is the success for which the table gives the
    number of completions.  ``tuning`` runs each setting at every point of a grid first.  ``sealed`` is the seed of test
    tasks that are played once, with ``sealed=true``.
    """

    question: str
    settings: Mapping[str, Sequence[str]]
    seeds: Sequence[int]
    overrides: Sequence[str] = ()
    evaluations: Sequence[str] = ()
    verdicts: Sequence[Mapping[str, Any]] = ()
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
        content = None if is_file else _content("sweep", name, search_path)
        try:
            content = read_yaml(Path(name)) if is_file else content
            return cls.of(with_base(content, lambda base: _content("base", base, search_path)))
        except ConfigError as error:
            raise ConfigError(f"sweep={name}: {error}") from error

    @classmethod
    def of(cls, content: Any) -> SweepFile:
        """Raises :class:`ConfigError`."""
        check_shapes(cls, content)
        check_arguments("", cls, content)
        if (tuning := content.get("tuning")) is not None:
            check_arguments("tuning", Tuning, tuning)
            tuning = Tuning(**tuning)
        return cls(**{**content, "tuning": tuning})

    def __post_init__(self) -> None:
        if not self.settings or not self.seeds:
            raise ConfigError("settings and seeds must name at least one of each")
        for name in self.evaluations:
            if name not in EVALUATIONS:
                raise ConfigError(f"evaluations: {name} is unknown{nearest(name, list(EVALUATIONS))}")
        if "sealed" in self.evaluations:
            raise ConfigError(
                "evaluations: sealed is made with sealed=true alone; give the seed of its tasks as sealed"
            )
        if self.tuning is not None and set(self.tuning.seeds) & set(self.seeds):
            raise ConfigError(
                "tuning.seeds must not be among seeds: what chooses the grid's point cannot judge it, too"
            )


def _content(key: str, name: str, search_path: Sequence[str]) -> dict[str, Any]:
    """Of the sweep ``name`` in the Hydra that is initialised.  Raises :class:`ConfigError` naming the ``key``."""
    if name not in (known := all_choices("sweep", search_path)):
        raise ConfigError(f"{key}={name} is unknown{nearest(name, known)}")
    try:
        return file_content(f"sweep/{name}", search_path)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{key}={name}: not YAML in UTF-8: {one_line(error)}") from error


def files_of(text: str) -> tuple[str, ...]:
    """``a.jsonl,folder`` or ``[a.jsonl,folder]``: these files, of a folder its ``*.jsonl``.  Raises
    :class:`ConfigError` naming what there is not, and a folder without any.
    """
    files: list[str] = []
    for name in (name.strip() for name in text.strip("[]").split(",") if name.strip()):
        path = Path(name)
        own = sorted(map(str, path.glob("*.jsonl"))) if path.is_dir() else [name] if path.is_file() else []
        if not own:
            reason = "the folder has no *.jsonl, the summaries of sweeps and tables"
            raise ConfigError(f"finished={name}: {reason if path.is_dir() else 'there is no such file'}")
        files += own
    return tuple(dict.fromkeys(files))


def check_folder(key: str, text: str) -> None:
    """Raise :class:`ConfigError`, naming the ``key``, where ``text`` is a file, or below one."""
    path = Path(text)
    there = next((place for place in (path, *path.parents) if place.exists()), None)
    if there is not None and not there.is_dir():
        raise ConfigError(f"{key}={text}: {there} is not a folder")


def seeds_of(key: str, text: str) -> tuple[int, ...]:
    """``0,4`` and ``[0,4]`` are these seeds.  Raises :class:`ConfigError` naming the ``key``."""
    try:
        seeds = tuple(int(word) for word in text.strip("[]").split(","))
    except ValueError:
        raise ConfigError(f"{key}={text} must be seeds: {key}=0,1") from None
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ConfigError(f"{key}={text} must be different whole numbers of at least 0")
    return seeds


def parse_overrides(overrides: Sequence[str], origin: str) -> Overrides:
    """By Hydra's grammar: ``key=a,b`` and ``key=range(3)`` are several overrides.  Errors name the ``origin``."""
    parser = OverridesParser.create()
    result: Overrides = {}
    for text in overrides:
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            raise ConfigError(f"{origin}{': ' if origin else ''}{text} is no override: {one_line(error)}") from error
        key = override.get_key_element()
        texts = [text]
        if override.is_sweep_override():
            texts = [f"{key}={value}" for value in override.sweep_string_iterator()]
        result[key.lstrip("+") if key.startswith("++") else key] = texts
    return result


def one_line(error: Exception) -> str:
    return re.sub(r"\s*\n\s*", " ", str(error)).strip()
