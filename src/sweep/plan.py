"""From a sweep's yaml and a command line to the jobs of a sweep."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_module
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ..errors import ConfigError, nearest
from ..runs.files import parse_yaml
from ..runs.fingerprint import evaluation_keys, training_hash
from ..setup.configuration import check_choices, check_keys, check_scale, choices
from .launcher import LAUNCHERS
from .record import SweepRecord
from .rows import SweepJob
from .swap import EVALUATIONS
from .verdicts import claims_of

Overrides = dict[str, list[str]]
"""The key of an override, with its prefix, to one override, or to several that the sweep varies."""


@dataclass(frozen=True)
class Options:
    """The keys of the command itself; all others configure the runs."""

    sweep: str
    launcher: str = "basic"
    runs: str = "runs"
    rerun_stale: bool = False
    dry_run: bool = False

    @classmethod
    def split(cls, arguments: Sequence[str]) -> tuple[Options, list[str]]:
        """The options, and the other arguments, which are for the runs.  Raises :class:`ConfigError`."""
        types = {field.name: field.type for field in fields(cls)}
        values: dict[str, Any] = {}
        others = []
        for argument in arguments:
            key, _, value = argument.partition("=")
            if key not in types:
                others.append(argument)
            elif types[key] == "bool" and value not in ("true", "false"):
                raise ConfigError(f"{key} must be true or false, got {value!r}")
            else:
                values[key] = value == "true" if types[key] == "bool" else value
        if not values.get("sweep"):
            raise ConfigError(f"Which sweep?  sweep=NAME with NAME one of: {', '.join(choices('sweep'))}")
        options = cls(**values)
        if options.launcher not in LAUNCHERS:
            raise ConfigError(f"launcher={options.launcher} is unknown{nearest(options.launcher, list(LAUNCHERS))}")
        if options.launcher.startswith("submitit") and not find_spec("submitit"):
            raise ConfigError(f"launcher={options.launcher} needs submitit: pip install -c constraints.txt '.[slurm]'")
        return options, others


@dataclass(frozen=True)
class SweepFile:
    """The content of `configs/sweep/NAME.yaml`.

    ``settings``: name to overrides; each is run with every seed.  ``overrides`` hold for all settings, unless the
    command line gives the key.  ``evaluations`` are made of each finished run, see :mod:`.swap`.  ``verdicts`` are
    claims, see :class:`~troupe.sweep.verdicts.Claim`.
    """

    question: str
    settings: Mapping[str, Sequence[str]]
    seeds: Sequence[int]
    overrides: Sequence[str] = ()
    evaluations: Sequence[str] = ()
    verdicts: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def read(cls, name: str) -> SweepFile:
        """The sweep ``name``, or the yaml at that path.  Raises :class:`ConfigError` naming the key that is wrong."""
        if name.endswith((".yaml", ".yml")):
            if not Path(name).is_file():
                raise ConfigError(f"sweep={name}: there is no such file")
            text = Path(name).read_text(encoding="utf-8")
        elif name in (known := choices("sweep")):
            text = (files("troupe.configs") / "sweep" / f"{name}.yaml").read_text(encoding="utf-8")
        else:
            raise ConfigError(f"sweep={name} is unknown{nearest(name, known)}")
        try:
            return cls(**yaml.safe_load(text))
        except (TypeError, yaml.YAMLError) as error:
            raise ConfigError(f"sweep={name}: {error}") from error

    def __post_init__(self) -> None:
        if not self.settings or not self.seeds:
            raise ConfigError("settings and seeds must name at least one of each")
        for name in self.evaluations:
            if name not in EVALUATIONS:
                raise ConfigError(f"evaluations: {name} is unknown{nearest(name, list(EVALUATIONS))}")


def plan_sweep(options: Options, arguments: Sequence[str]) -> SweepRecord:
    """The sweep with every job, composed and checked as the training command does before a run starts.

    Raises :class:`ConfigError`, naming the setting, for a configuration that cannot be composed or has an unknown key.
    """
    file = SweepFile.read(options.sweep)
    common, command_line = _parse(file.overrides, "overrides"), _parse(arguments, "")
    for key in command_line:
        if (name := key.lstrip("+~")) in ("run_dir", "resume"):
            raise ConfigError(f"{name} cannot be given: every run of a sweep has its own folder below runs=FOLDER")
    try:
        claims = claims_of(file.verdicts, list(file.settings))
    except ValueError as error:
        raise ConfigError(f"sweep={options.sweep}: {error}") from error
    jobs = []
    with initialize_config_module("troupe.configs", version_base="1.3"):
        for setting, overrides in file.settings.items():
            own = _parse(overrides, f"settings.{setting}")
            for key in own.keys() & command_line.keys():
                raise ConfigError(f"sweep={options.sweep} varies {key}; it cannot be given")
            seeds = {"seed": [f"seed={seed}" for seed in file.seeds]}
            jobs += [_job(setting, *run) for run in _combinations(seeds | common | own | command_line)]
    sweep = Path(options.sweep).stem
    experiments = (common | command_line).get("experiment", [])
    folder = Path(options.runs, "sweeps", sweep, "+".join(text.partition("=")[2] for text in experiments))
    return SweepRecord(folder, sweep, file.question, Path(options.runs), tuple(file.evaluations), claims, jobs)


def _parse(overrides: Sequence[str], origin: str) -> Overrides:
    """By Hydra's grammar: ``key=a,b`` and ``key=range(3)`` are several overrides.  Errors name the ``origin``."""
    parser = OverridesParser.create()
    result: Overrides = {}
    for text in overrides:
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            raise ConfigError(f"{origin}{': ' if origin else ''}{text} is no override: {_one_line(error)}") from error
        key = override.get_key_element()
        texts = [text]
        if override.is_sweep_override():
            texts = [f"{key}={value}" for value in override.sweep_string_iterator()]
        result[key.lstrip("+") if key.startswith("++") else key] = texts
    return result


def _combinations(overrides: Overrides) -> list[tuple[str, list[str]]]:
    """(Variant, overrides of one run) for every combination; seeds vary fastest and are not part of the variant."""
    keys = [key for key in overrides if key != "seed"] + ["seed"]
    varied = [key for key in keys if len(overrides[key]) > 1 and key != "seed"]
    combinations = []
    for texts in product(*(overrides[key] for key in keys)):
        run = dict(zip(keys, texts, strict=True))
        combinations.append((" ".join(run[key] for key in varied), list(run.values())))
    return combinations


def _job(setting: str, variant: str, overrides: list[str]) -> SweepJob:
    try:
        check_choices(overrides)
        check_scale(overrides)
        cfg = compose("train", overrides=overrides, return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        with open_dict(cfg):
            del cfg["hydra"]
        config = parse_yaml(OmegaConf.to_yaml(cfg, resolve=True))
        check_keys(config, OmegaConf.to_yaml(cfg, resolve=False))
    except (ConfigError, HydraException, OmegaConfBaseException) as error:
        cause = f": {error.__cause__}" if error.__cause__ and str(error.__cause__) not in str(error) else ""
        raise ConfigError(f"setting {setting} ({' '.join(overrides)}): {_one_line(error)}{cause}") from error
    own = tuple(text for text in overrides if not text.startswith("hydra"))
    return SweepJob(setting, variant, config["seed"], own, training_hash(config), evaluation_keys(config))


def _one_line(error: Exception) -> str:
    return re.sub(r"\s*\n\s*", " ", str(error)).strip()
