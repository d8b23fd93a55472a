"""From a sweep's yaml and a command line to the jobs of a sweep."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ..errors import ConfigError
from ..runs.files import parse_yaml
from ..runs.fingerprint import evaluation_keys, flat, training_hash
from ..setup.command_line import check_choices, check_overrides, parsed
from ..setup.sections import check_seed, read_config
from .options import Options, Overrides, SweepFile, one_line, parse_overrides
from .record import SweepRecord
from .rows import SweepJob
from .stored import adopted, stored_runs
from .verdicts import claims_of

FOLDER = "every run of a sweep has its own folder below runs=FOLDER"
TAKEN = {"run_dir": FOLDER, "resume": FOLDER, "seed": "a sweep has seeds, which every setting is run with"}
"""Keys of runs that the overrides of a sweep cannot give, and why; the command line may give the seed."""


def plan_sweep(
    options: Options, arguments: Sequence[str], chosen: Mapping[str, Sequence[str]] | None = None
) -> SweepRecord:
    """The sweep with every job, composed and checked as the training command does before a run starts.

    ``chosen`` are the overrides that tuning has chosen, by setting; a setting that it lacks has no jobs.  Raises
    :class:`ConfigError`, naming the setting, for a configuration that cannot be composed or has an unknown key.
    """
    file = options.file()
    tuned = chosen if file.tuning is not None else dict.fromkeys(file.settings, ())
    points = {name: parse_overrides(each, f"tuning of {name}") for name, each in (tuned or {}).items()}
    return _plan(options, arguments, file, points)


def plan_file(
    options: Options, arguments: Sequence[str], file: SweepFile, configs: dict[str, dict[str, Any]] | None = None
) -> SweepRecord:
    """As :func:`plan_sweep`, of a ``file`` that was not tuned and need not be on disk.

    ``configs`` is filled with the resolved configuration of each job, by its training hash.
    """
    return _plan(options, arguments, file, {name: {} for name in file.settings}, configs)


def plan_tuning(options: Options, arguments: Sequence[str]) -> SweepRecord | None:
    """The runs that tune each setting, one variant per point of the grid, in a folder below the sweep's; None where the
    sweep has no tuning.  Raises :class:`ConfigError` as :func:`plan_sweep`.
    """
    file = options.file()
    if (tuning := file.tuning) is None:
        return None
    common = [*file.overrides, *tuning.overrides]
    question = f"Tuning of sweep {Path(options.sweep).stem}: the final runs have other seeds and other boards."
    own = replace(
        file, question=question, overrides=common, seeds=tuning.seeds, verdicts=(), evaluations=(), tuning=None
    )
    grid = {key: [f"{key}={value}" for value in values] for key, values in tuning.grid.items()}
    words = [word for word in arguments if word.partition("=")[0] != "seed"]  # which are the final runs'
    for key, texts in parse_overrides(words, "").items():
        if key in grid or len(texts) > 1:
            raise ConfigError(f"sweep={options.sweep} is tuned: {key} cannot be {'given' if key in grid else 'varied'}")
    record = _plan(replace(options, sealed=False, block=()), words, own, dict.fromkeys(file.settings, grid))
    return replace(record, folder=record.folder / "tuning", name=f"{record.name}, tuning")


def _plan(
    options: Options,
    arguments: Sequence[str],
    file: SweepFile,
    points: Mapping[str, Overrides],
    configs: dict[str, dict[str, Any]] | None = None,
) -> SweepRecord:
    """``points`` are further overrides by setting; a setting without them has no jobs."""
    common, command_line = parse_overrides(file.overrides, "overrides"), parse_overrides(arguments, "")
    _check_free(command_line, "", ("run_dir", "resume"))
    _check_free(common, "overrides: ", TAKEN)
    try:
        claims = claims_of(file.verdicts, list(file.settings))
    except ValueError as error:
        raise ConfigError(f"sweep={options.sweep}: {error}") from error
    jobs, configs = [], {} if configs is None else configs
    with options.configurations():
        for setting, overrides in file.settings.items():
            own = parse_overrides(overrides, f"settings.{setting}")
            _check_free(own, f"settings.{setting}: ", TAKEN)
            for key in own.keys() & command_line.keys():
                raise ConfigError(f"sweep={options.sweep} varies {key}; it cannot be given")
            if setting not in points:
                continue
            seeds = {"seed": [f"seed={seed}" for seed in file.seeds]}
            words = seeds | common | own | points[setting] | command_line
            jobs += _jobs(setting, _combinations(words), options.search_path, configs)
    sweep = Path(options.sweep).stem
    experiments = (common | command_line).get("experiment", [])
    folder = Path(options.runs, "sweeps", sweep, "+".join(text.partition("=")[2] for text in experiments))
    evaluations = (*file.evaluations, *(["sealed"] if options.sealed else []))
    record = SweepRecord(folder, sweep, file.question, Path(options.runs), evaluations, claims, jobs)
    if unknown := sorted(set(options.block) - {job.seed for job in jobs} if jobs else ()):
        raise ConfigError(f"block={unknown[0]} is none of the seeds of sweep={options.sweep}")
    record = replace(
        record,
        threshold=file.threshold,
        sealed=file.sealed,
        finished=tuple(map(Path, options.finished)),
        block=options.block,
    )
    stored = [run for each in record.finished for run in stored_runs(each)]
    record = replace(record, adopted=adopted(jobs, configs, stored))
    if options.sealed:
        _check_sealed(record, len(points) < len(file.settings))
    return record


def _check_free(overrides: Overrides, origin: str, taken: Container[str]) -> None:
    """Raise :class:`ConfigError`, with the ``origin`` before it, for a key that the sweep decides."""
    for key in overrides:
        if (name := key.lstrip("+~")) in taken:
            raise ConfigError(f"{origin}{name} cannot be given: {TAKEN[name]}")


def _check_sealed(record: SweepRecord, untuned: bool) -> None:
    """Raises :class:`ConfigError` unless the sealed tasks may be played: all runs are there, or all of the block."""
    if record.sealed is None:
        raise ConfigError(f"sealed=true: sweep {record.name} names no seed for its sealed tasks (sealed: SEED)")
    runs = [run for job, run in zip(record.jobs, record.best_runs(), strict=True) if record.in_block(job.seed)]
    missing = sum(run is None for run in runs)
    if missing or untuned:
        count = "some settings are not tuned" if untuned else f"{missing} of {len(runs)} runs are not finished"
        raise ConfigError(f"sealed=true plays the sealed tasks once, at the end, but {count}")


def _combinations(overrides: Overrides) -> list[tuple[str, list[str]]]:
    """(Variant, overrides of one run) for every combination; seeds vary fastest and are not part of the variant."""
    keys = [key for key in overrides if key != "seed"] + ["seed"]
    varied = [key for key in keys if len(overrides[key]) > 1 and key != "seed"]
    combinations = []
    for texts in product(*(overrides[key] for key in keys)):
        run = dict(zip(keys, texts, strict=True))
        combinations.append((" ".join(run[key] for key in varied), list(run.values())))
    return combinations


def _jobs(
    setting: str,
    runs: Sequence[tuple[str, list[str]]],
    search_path: Sequence[str],
    configs: dict[str, dict[str, Any]],
) -> list[SweepJob]:
    """The jobs of (variant, overrides) in ``runs``.  Runs that differ in the seed alone are composed once, and checked
    once where nothing else follows from the seed.
    """
    jobs, composed = [], dict[tuple[str, ...], tuple[DictConfig, dict[str, Any]]]()
    for variant, overrides in runs:
        *others, seed = overrides
        key = tuple(others)
        try:
            if key in composed:
                cfg, checked = composed[key]
                cfg = cfg.copy()
                cfg.seed = yaml.safe_load(seed.partition("=")[2])
            else:
                cfg, checked = _composed([*search_path, *overrides]), None
            config = parse_yaml(OmegaConf.to_yaml(cfg, resolve=True))
            if checked is None or _differ(config, checked) - {"seed", "run_dir"}:
                read_config(config, OmegaConf.to_yaml(cfg, resolve=False))
            check_seed(config["seed"])
        except (ConfigError, HydraException, OmegaConfBaseException) as error:
            cause = f": {error.__cause__}" if error.__cause__ and str(error.__cause__) not in str(error) else ""
            raise ConfigError(f"setting {setting} ({' '.join(overrides)}): {one_line(error)}{cause}") from error
        composed.setdefault(key, (cfg, config))
        own = tuple(text for text in overrides if not text.startswith("hydra"))
        jobs.append(SweepJob(setting, variant, config["seed"], own, training_hash(config), evaluation_keys(config)))
        configs[jobs[-1].training] = config
    return jobs


def _composed(words: list[str]) -> DictConfig:
    """The configuration of ``troupe train`` with these words."""
    check_choices(parsed(words))
    try:
        cfg = compose("train", overrides=words, return_hydra_config=True)
    except HydraException:
        check_overrides("train", words)  # names a key that the world or its agents do not have
        raise
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """The dotted keys whose values are not the same."""
    first, second = dict(flat(one)), dict(flat(other))
    return {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}
