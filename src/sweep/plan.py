"""From a sweep's yaml and a command line to the runs that they ask for."""

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
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ..errors import ConfigError, nearest
from ..runs.fingerprint import evaluation_keys, training_hash
from ..runs.run import read_config
from ..setup.command_line import check_choices, parsed
from ..setup.composition import choices, configurations
from ..setup.configuration import check_keys
from .record import SweepRecord
from .rows import Job
from .swap import EVALUATIONS
from .verdicts import verdicts_of

LAUNCHERS = {"basic": "basic", "joblib": "joblib", "submitit": "submitit_slurm", "submitit_local": "submitit_local"}
"""Names of ``launcher=``, with Hydra's: here one after the other, here side by side, on Slurm, and submitit without."""

Overrides = dict[str, list[str]]
"""Key, as it stands in an override, to the overrides to choose from: one, or several to sweep over."""


@dataclass(frozen=True)
class Options:
    """The keys of the command that are no configuration of a run."""

    sweep: str
    launcher: str = "basic"
    runs: str = "runs"
    rerun_stale: bool = False
    dry_run: bool = False

    @classmethod
    def split(cls, arguments: Sequence[str]) -> tuple[Options, list[str]]:
        """The options, and the arguments that are left for the runs.  Raises :class:`ConfigError`."""
        names = {field.name: field.type for field in fields(cls)}
        given: dict[str, Any] = {}
        rest = []
        for argument in arguments:
            key, _, value = argument.partition("=")
            if key not in names:
                rest.append(argument)
            elif names[key] == "bool" and value not in ("true", "false"):
                raise ConfigError(f"{key} must be true or false, got {value!r}")
            else:
                given[key] = value == "true" if names[key] == "bool" else value
        if not given.get("sweep"):
            raise ConfigError(f"Which sweep?  sweep=NAME with NAME one of: {', '.join(choices('sweep'))}")
        options = cls(**given)
        if options.launcher not in LAUNCHERS:
            raise ConfigError(f"launcher={options.launcher} is unknown{nearest(options.launcher, list(LAUNCHERS))}")
        if options.launcher.startswith("submitit") and not find_spec("submitit"):
            raise ConfigError(f"launcher={options.launcher} needs submitit: pip install -c constraints.txt '.[slurm]'")
        return options, rest


@dataclass(frozen=True)
class SweepFile:
    """The content of `configs/sweep/NAME.yaml`.

    ``settings``: name to overrides; each is run with every seed.  ``overrides`` hold for all of them, unless the
    command line gives the key.  ``evaluations``: what is measured on each finished run, see :mod:`.swap`.
    ``verdicts``: see :class:`~troupe.sweep.verdicts.Verdict`.
    """

    question: str
    settings: Mapping[str, Sequence[str]]
    seeds: Sequence[int]
    overrides: Sequence[str] = ()
    evaluations: Sequence[str] = ()
    verdicts: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def read(cls, name: str) -> SweepFile:
        """By its name, or the path of a yaml.  Raises :class:`ConfigError` naming the key that is wrong."""
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


def plan(options: Options, arguments: Sequence[str]) -> SweepRecord:
    """Every run, composed and checked as the training command does before it starts.

    Raises :class:`ConfigError`, naming the setting, for a configuration that cannot be composed or holds a key that
    nothing reads.
    """
    file = SweepFile.read(options.sweep)
    fixed, given = _parsed(file.overrides, "overrides"), _parsed(arguments, "")
    for key in given:
        if (name := key.lstrip("+~")) in ("run_dir", "resume"):
            raise ConfigError(f"{name} cannot be given: every run of a sweep has its own folder below runs=FOLDER")
    try:
        verdicts = verdicts_of(file.verdicts, list(file.settings))
    except ValueError as error:
        raise ConfigError(f"sweep={options.sweep}: {error}") from error
    jobs = []
    with configurations():
        for setting, overrides in file.settings.items():
            own = _parsed(overrides, f"settings.{setting}")
            for key in own.keys() & given.keys():
                raise ConfigError(f"{key} is what sweep={options.sweep} varies; it cannot be given")
            seeds = {"seed": [f"seed={seed}" for seed in file.seeds]}
            jobs += [_job(setting, *one) for one in _combinations(seeds | fixed | own | given)]
    sweep = Path(options.sweep).stem
    experiments = (fixed | given).get("experiment", [])
    folder = Path(options.runs, "sweeps", sweep, "+".join(one.partition("=")[2] for one in experiments))
    return SweepRecord(folder, sweep, file.question, Path(options.runs), tuple(file.evaluations), verdicts, jobs)


def _parsed(overrides: Sequence[str], where: str) -> Overrides:
    """By Hydra's grammar: ``key=a,b`` and ``key=range(3)`` are several."""
    parser = OverridesParser.create()
    result: Overrides = {}
    for text in overrides:
        try:
            one = parser.parse_override(text)
        except HydraException as error:
            raise ConfigError(f"{where}{': ' if where else ''}{text} is no override: {_one_line(error)}") from error
        key = one.get_key_element()
        several = one.is_sweep_override()
        result[key.lstrip("+") if key.startswith("++") else key] = (
            [f"{key}={value}" for value in one.sweep_string_iterator()] if several else [text]
        )
    return result


def _combinations(overrides: Overrides) -> list[tuple[str, list[str]]]:
    """(Variant, overrides of one run) for every combination; seeds vary fastest and are no variant."""
    names = [key for key in overrides if key != "seed"] + ["seed"]
    swept = [key for key in names if len(overrides[key]) > 1 and key != "seed"]
    combinations = []
    for combination in product(*(overrides[key] for key in names)):
        chosen = dict(zip(names, combination, strict=True))
        combinations.append((" ".join(chosen[key] for key in swept), list(chosen.values())))
    return combinations


def _job(setting: str, variant: str, overrides: list[str]) -> Job:
    try:
        check_choices(parsed(overrides))
        cfg = compose("train", overrides=overrides, return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        with open_dict(cfg):
            del cfg["hydra"]
        config = read_config(OmegaConf.to_yaml(cfg, resolve=True))
        check_keys(config, OmegaConf.to_yaml(cfg, resolve=False))
    except (ConfigError, HydraException, OmegaConfBaseException) as error:
        cause = f": {error.__cause__}" if error.__cause__ and str(error.__cause__) not in str(error) else ""
        raise ConfigError(f"setting {setting} ({' '.join(overrides)}): {_one_line(error)}{cause}") from error
    shown = tuple(one for one in overrides if not one.startswith("hydra"))
    return Job(setting, variant, config["seed"], shown, training_hash(config), evaluation_keys(config))


def _one_line(error: Exception) -> str:
    return re.sub(r"\s*\n\s*", " ", str(error)).strip()
