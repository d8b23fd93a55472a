"""From a yaml and a command line to the jobs of a sweep, or to one sweep per part of a table.

What ``troupe eval`` would refuse of a table's teams, said before the runs that they are made of are trained.

The choice of each setting's point of the grid, from the runs that tune it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ..errors import ConfigError, nearest
from ..evaluation.assignment import LocalPolicy, assign
from ..evaluation.conditions import world_variants
from ..evaluation.request import Checkpoint, EvalRequest, requested
from ..experience import Sampling
from ..runs.bounded import parse_yaml
from ..runs.fingerprint import evaluation_keys, flat, training_hash
from ..setup.command_line import ANY_RUN, check_choices, check_overrides, parsed, with_open_keys
from ..setup.instantiation import HISTORY, build_world, check_targets
from ..setup.sections import check_seed, read_config
from .options import Options
from .publication_file import PlayedTeam, Scale, TableFile, TablePart
from .record import SweepRecord
from .rows import SweepJob
from .summary import table_of
from .sweep_file import Overrides, SweepFile, one_line, parse_overrides

EVALUATION = ("checkpoint=last", "temperature=own")
"""Keys of ``troupe eval`` that every team is evaluated with."""


@dataclass(frozen=True)
class PlannedPolicies:
    """The policies of the runs of ``setting``, whose ``team`` is agents to policies and whose world has the
    configuration ``world``; none is trained yet.
    """

    setting: str
    team: Mapping[str, str]
    world: Mapping[str, Any]

    def policy(self, key: str, agent: str, checkpoint: Checkpoint) -> LocalPolicy:
        """That of ``agent``; a single agent's can act for any.  Raises :class:`ConfigError` naming ``key``."""
        if agent not in self.team and len(self.team) > 1:
            raise ConfigError(f"{key}: setting '{self.setting}' has no agent '{agent}'")
        return LocalPolicy(key, self.team.get(agent) or next(iter(self.team.values())), "", Sampling())


def check_teams(part: TablePart, teams: Mapping[str, PlayedTeam], configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise :class:`ConfigError` for keys of a team that ``troupe eval`` refuses, and for ``agents`` of ``part`` that
    no run has; ``configs`` are the configurations of runs, by setting.  Hydra must be initialised.
    """
    policies = {name: PlannedPolicies(name, config["team"], config["env"]) for name, config in configs.items()}
    requests: dict[tuple[str, ...], EvalRequest] = {}  # most teams have the same keys: none
    for name, team in teams.items():
        keys = tuple(map(part.filled, team.keys))
        try:
            if keys not in requests:
                requests[keys] = _requested(keys)
            _check(part, team, requests[keys], policies)
        except ConfigError as error:
            raise ConfigError(f"teams.{name}: {error}") from error
    known = list(dict.fromkeys(agent for own in policies.values() if len(own.team) > 1 for agent in own.team))
    unknown = [agent for agent in part.agents if agent not in known]
    if known and unknown and tuple(part.agents) != TablePart.agents:
        raise ConfigError(f"agents: no run has an agent '{unknown[0]}'{nearest(unknown[0], known)}")


def _requested(keys: Sequence[str]) -> EvalRequest:
    words = with_open_keys(["run=none", *EVALUATION, *keys])
    check_overrides("eval", words)
    values: Any = OmegaConf.to_container(compose("eval", overrides=words), resolve=True)
    return requested(values, ANY_RUN, trained=True)


def _check(part: TablePart, team: PlayedTeam, request: EvalRequest, policies: Mapping[str, PlannedPolicies]) -> None:
    own = policies[team.setting]
    others = {part.filled(agent): policies[setting] for agent, setting in team.agents.items()}
    places = {**request.agents, **dict.fromkeys(others, "none@last")}
    for agents in _agents(request, own):
        assign(replace(request, agents=places), agents, own, dict.fromkeys(places, own) | others)


def _agents(request: EvalRequest, own: PlannedPolicies) -> Iterator[Sequence[str]]:
    """The agents of each world that is played, in the order in which they act, which ``echo`` hangs on.  Worlds may
    load data: they are built for these keys only.
    """
    if not request.world and not request.echo:
        yield list(own.team)
        return
    for _, config in world_variants(request.world, own.world):
        yield build_world("world", config).agents


FOLDER = "every run of a sweep has its own folder below runs=FOLDER"
TAKEN = {"run_dir": FOLDER, "resume": FOLDER, "seed": "a sweep has seeds, which every setting is run with"}
"""Keys of runs that the overrides of a sweep cannot give, and why; the command line may give the seed."""
OF_TABLE = "the table decides it (seeds=)"
Configs = dict[str, dict[str, Any]]
"""The resolved configuration of each job, by its training hash."""


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
    record = _plan(options, arguments, file, points)
    if options.sealed:
        _check_sealed(record, len(points) < len(file.settings))
    return record


def plan_tuning(options: Options, arguments: Sequence[str]) -> SweepRecord | None:
    """The runs that tune each setting, one variant per point of the grid, in a folder below the sweep's; None where the
    sweep has no tuning.  Raises :class:`ConfigError` as :func:`plan_sweep`.
    """
    file = options.file()
    if (tuning := file.tuning) is None:
        return None
    common = [*file.overrides, *tuning.overrides]
    question = f"Tuning of sweep {Path(options.sweep).stem}: the final runs have other seeds and other boards."
    own = SweepFile(question, file.settings, tuning.seeds, common, threshold=file.threshold, sealed=file.sealed)
    grid = {key: [f"{key}={value}" for value in values] for key, values in tuning.grid.items()}
    words = [word for word in arguments if word.partition("=")[0] != "seed"]  # which are the final runs'
    for key, texts in parse_overrides(words, "").items():
        if key in grid or len(texts) > 1:
            raise ConfigError(f"sweep={options.sweep} is tuned: {key} cannot be {'given' if key in grid else 'varied'}")
    record = _plan(replace(options, sealed=False), words, own, dict.fromkeys(file.settings, grid))
    return replace(record, folder=record.folder / "tuning", name=f"{record.name}, tuning")


@dataclass(frozen=True)
class PartPlan:
    """The sweep of one part of a table, and the teams that are made of its runs."""

    name: str
    part: TablePart
    record: SweepRecord
    teams: Mapping[str, PlayedTeam]


@dataclass(frozen=True)
class TablePlan:
    """A table at a scale.  ``words`` are the overrides of the command line: the table's own are replaced by them."""

    table: TableFile
    scale: Scale
    folder: Path
    seeds: tuple[int, ...]
    words: tuple[str, ...]
    parts: Sequence[PartPlan]


def plan_table(options: Options, table: TableFile, words: Sequence[str]) -> TablePlan:
    """Raises :class:`ConfigError`, naming the setting or the team, for a run that cannot be composed, and for a team
    that cannot be evaluated."""
    _check_free(parse_overrides(words, ""), "", dict.fromkeys(("seed", "experiment"), OF_TABLE))
    seeds = options.seeds_of(table)
    # Figures that are not the protocol's take no place of the protocol's.
    own = f"-{sha256(' '.join(sorted(words)).encode()).hexdigest()[:8]}" if words else ""
    folder = Path(options.runs, "reproduce", table.name, f"{options.scale}{own}")
    # Of summaries the table's own comes first: it alone has the teams that were made of its runs.
    own_first = sorted(options.finished, key=lambda file: table_of(Path(file)) != (table.name, options.scale))
    options, parts = replace(options, sweep=table.name, finished=tuple(own_first)), []
    for name, part in table.parts_at(options.scale).items():
        settings, overrides = table.settings_at(options.scale, part), table.overrides_at(options.scale, part)
        file, configs = SweepFile(table.question, settings, seeds, overrides), Configs()
        record = _plan(options, words, file, {setting: {} for setting in settings}, configs)
        teams = table.teams_at(options.scale, part)
        try:
            with options.configurations():
                check_teams(part, teams, {job.setting: configs[job.training] for job in record.jobs})
        except ConfigError as error:
            raise ConfigError(f"table={table.name}: parts.{name}: {error}") from error
        record = replace(record, folder=folder / "parts" / name, name=f"{table.name}, {name}")
        parts.append(PartPlan(name, part, record, teams))
    return TablePlan(table, options.scale, folder, seeds, tuple(words), parts)


def _plan(
    options: Options,
    arguments: Sequence[str],
    file: SweepFile,
    points: Mapping[str, Overrides],
    configs: Configs | None = None,
) -> SweepRecord:
    """``points`` are further overrides by setting; a setting without them has no jobs.  ``configs`` is filled."""
    common, command_line = parse_overrides(file.overrides, "overrides"), parse_overrides(arguments, "")
    _check_free(command_line, "", dict.fromkeys(("run_dir", "resume"), FOLDER))
    _check_free(common, "overrides: ", TAKEN)
    jobs, configs = list[SweepJob](), Configs() if configs is None else configs
    with options.configurations():
        for setting, overrides in file.settings.items():
            own = parse_overrides(overrides, f"settings.{setting}")
            _check_free(own, f"settings.{setting}: ", TAKEN)
            for key in own.keys() & command_line.keys():
                raise ConfigError(f"{options.command} varies {key}; it cannot be given")
            if setting in points:
                seeds = {"seed": [f"seed={seed}" for seed in file.seeds]}
                words = seeds | common | own | points[setting] | command_line
                jobs += _jobs(setting, _combinations(words), options, configs)
    sweep, runs = Path(options.sweep).stem, Path(options.runs)
    experiments = (common | command_line).get("experiment", [])
    folder = Path(runs, "sweeps", sweep, "+".join(text.partition("=")[2] for text in experiments))
    evaluations = (*file.evaluations, *(["sealed"] if options.sealed else []))
    finished = tuple(map(Path, options.finished))
    claims, more = file.verdicts, (file.threshold, file.sealed, finished)
    return SweepRecord(folder, sweep, file.question, runs, evaluations, claims, jobs, *more)


def _check_free(overrides: Overrides, origin: str, taken: Mapping[str, str]) -> None:
    """Raise :class:`ConfigError`, with the ``origin`` before it, for a key that is ``taken``, with the reason."""
    for key in overrides:
        if (name := key.lstrip("+~")) in taken:
            raise ConfigError(f"{origin}{name} cannot be given: {taken[name]}")


def _check_sealed(record: SweepRecord, untuned: bool) -> None:
    """Raises :class:`ConfigError` unless the sealed tasks may be played: all runs are there."""
    if record.sealed is None:
        raise ConfigError(f"sealed=true: sweep {record.name} names no seed for its sealed tasks (sealed: SEED)")
    runs = record.best_runs()
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
    options: Options,
    configs: Configs,
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
                cfg, checked = _composed([*options.search_path, *overrides], options.own_keys), None
            config = parse_yaml(OmegaConf.to_yaml(cfg, resolve=True))
            if checked is None or _differ(config, checked) - {"seed", "run_dir"}:
                read_config(config, OmegaConf.to_yaml(cfg, resolve=False))
                for section in ("env", "algorithm"):
                    check_targets(section, {name: each for name, each in config[section].items() if name != HISTORY})
            check_seed(config["seed"])
        except (ConfigError, HydraException, OmegaConfBaseException) as error:
            cause = f": {error.__cause__}" if error.__cause__ and str(error.__cause__) not in str(error) else ""
            raise ConfigError(f"setting {setting} ({' '.join(overrides)}): {one_line(error)}{cause}") from error
        composed.setdefault(key, (cfg, config))
        own, training = tuple(text for text in overrides if not text.startswith("hydra")), training_hash(config)
        evaluation, most = evaluation_keys(config), most_completions(config)
        jobs.append(SweepJob(setting, variant, config["seed"], own, training, evaluation, most))
        configs[training] = config
    return jobs


def most_completions(config: Mapping[str, Any]) -> float:
    """The completions of a run's training, at the most: every turn of every tree, and where messages are paid by the
    end of their turn, the answers of all who may follow in it.
    """
    loop, sampler, turns = config["loop"], config["algorithm"]["sampler"], config["env"].get("horizon", 1)
    joint = sampler["_target_"].rpartition(".")[2].lower().startswith("joint")
    nodes = sum(sampler["k"] ** turn for turn in range(turns)) if joint else turns
    agents, followed = len(config["team"]), config["algorithm"].get("reward", {}).get("team", "own") != "own"
    agents = agents * (agents + 1) // 2 if followed else agents
    most = float(loop["iterations"] * loop["tasks_per_iteration"] * nodes * sampler["k"] * agents)
    return min(most, loop["completions"]) if loop["completions"] else most


def _composed(words: list[str], own: Sequence[str]) -> DictConfig:
    """The configuration of ``troupe train`` with these words; of the ``own`` keys of the command none is misspelt."""
    check_choices(parsed(words))
    try:
        cfg = compose("train", overrides=words, return_hydra_config=True)
    except HydraException:
        check_overrides("train", words, own=own)  # names a key that the world or its agents do not have
        raise
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """The dotted keys whose values are not the same."""
    first, second = dict(flat(one)), dict(flat(other))
    return {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}


def choices(tuning: SweepRecord, grid: Mapping[str, Sequence[object]]) -> dict[str, list[str]]:
    """The overrides of the grid's point with the highest success on validation after training, mean over seeds, by
    setting; of equal ones that with the highest mean over all settings: a setting that learns nothing at any point
    shall not end with one that is bad for all.  A setting of which a run is missing is left out.
    """
    scores: dict[str, dict[tuple[str, ...], list[float | None]]] = {}
    for job, row in zip(tuning.jobs, tuning.rows(), strict=True):
        point = tuple(text for text in job.overrides if text.partition("=")[0] in grid)
        success = row["curve"][-1].outcomes.mean if row["status"] == "finished" and row["curve"] else None
        scores.setdefault(job.setting, {}).setdefault(point, []).append(success)
    means: dict[str, dict[tuple[str, ...], float]] = {}
    for setting, by_point in scores.items():
        known = {point: [value for value in values if value is not None] for point, values in by_point.items()}
        if all(len(known[point]) == len(values) for point, values in by_point.items()):
            means[setting] = {point: fmean(values) for point, values in known.items()}
    points = next(iter(means.values()), {})
    overall = {point: fmean(each[point] for each in means.values()) for point in points}
    chosen = {}
    for setting, mean_by_point in means.items():
        _, _, best = max((mean, overall[point], point) for point, mean in mean_by_point.items())
        chosen[setting] = list(best)
    return chosen
