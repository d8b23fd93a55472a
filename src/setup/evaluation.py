"""From configurations to the objects of an evaluation: teams, the request, published test sets, conditions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from omegaconf import DictConfig, OmegaConf

from ..envs.returned import TaskSource
from ..errors import ConfigError, nearest, number_of
from ..evaluation.assignment import (
    LocalPolicy,
    PolicySource,
    RemotePolicy,
    ScriptedPolicy,
    TeamPolicy,
    assign,
    server_address,
)
from ..evaluation.conditions import Condition, ConditionResult, Played, condition_name, play_conditions, world_variants
from ..evaluation.partial import NOTHING_KEPT, PartialEvaluation
from ..evaluation.request import Checkpoint, EvalRequest, check_source, requested
from ..experience import Sampling
from ..gateway.guard import KEY_ENV
from ..rollout.chat_template import PREFILL
from ..rollout.engines.remote.settings import RemoteSettings
from ..runs.faults import DEFAULT_FAULTS, FaultSettings
from ..runs.run import RunReader
from .command_line import check_choices, parsed
from .composition import current_search_path
from .evaluation_actors import ActorFactory
from .instantiation import build_world, call, construct, notice
from .policies import agent_sampling, read_chat, read_remote, read_skill
from .sections import check_keys, read_config
from .trust import NOBODY, Trust, check_stored

GROUP = "benchmarks"


@dataclass(frozen=True)
class Benchmark:
    """A published test set: the configuration of its world, and the papers' figures for it, percent, by their names."""

    name: str
    world: Mapping[str, Any]
    published: Mapping[str, float]


def published_sets() -> dict[str, DictConfig]:
    """By the name of each set, the file of the group that has it among others."""
    files = GlobalHydra.instance().config_loader().get_group_options(GROUP, ObjectType.CONFIG)
    sets: dict[str, DictConfig] = {}
    for name in files:
        file = compose(f"{GROUP}/{name}", overrides=current_search_path())
        if "sets" not in file:
            raise ConfigError(f"{GROUP}/{name}.yaml must have the key sets, in # @package _global_")
        if twice := sets.keys() & {str(each) for each in file.sets}:
            raise ConfigError(f"{GROUP}/{name}.yaml: the set {min(twice)} stands in another file of {GROUP}, too")
        sets |= {str(each): file for each in file.sets}
    return sets


def benchmarks(request: EvalRequest, config: Mapping[str, Any]) -> Iterator[Benchmark]:
    """Those that ``request`` asks for, for the team of a run with this ``config``.

    A team whose own world is of the same class keeps its settings, with the benchmark's data; any other gets the
    settings of the papers.  Raises :class:`ConfigError` naming the key that is wrong.
    """
    known = published_sets() if request.benchmark else {}
    for name in request.benchmark:
        if name not in known:
            raise ConfigError(f"benchmark={name} is unknown{nearest(name, sorted(known))}")
    for name in request.data:
        if name not in request.benchmark:
            raise ConfigError(f"data.{name}: benchmark has no {name}{nearest(name, request.benchmark)}")
    for name in request.benchmark:
        file = known[name]
        OmegaConf.update(file, "allow_unsafe_execution", config.get("allow_unsafe_execution", False))
        if name in request.data:
            OmegaConf.update(file, f"sets.{name}.data", request.data[name])
        family: Any = OmegaConf.to_container(file, resolve=True)
        chosen = family["sets"][name]
        world: Any = OmegaConf.to_container(OmegaConf.merge(family["world"], chosen["world"]))
        own = config["env"]
        if own["_target_"] == world["_target_"]:
            world = {**own, **{key: world[key] for key in ("train", *family["sources"]) if key in world}}
            world |= {"validation": []} if "validation" in own else {}
        else:
            world["team"] = "solo" if len(config["team"]) == 1 else "pair"
        yield Benchmark(name, world, chosen.get("published", {}))


NEEDED = ("env", "team", "policies", "engine", "loop", "seed", "threads")
"""The keys of a run's configuration that an evaluation reads."""


@dataclass(frozen=True)
class TeamSource:
    """A team whose policies can be evaluated: that of a run, or an experiment's that was never trained (``run`` is
    None).  ``config`` is its resolved configuration; ``trust`` says what that of a
    run may name; None where no server of it will be asked.  ``guest``: its policies play in the team of another run,
    where the policy of a single agent may have the place of any agent.
    """

    config: Mapping[str, Any]
    run: RunReader | None = None
    trust: Trust | None = NOBODY
    guest: bool = False

    @property
    def default_checkpoint(self) -> Checkpoint:
        """What is played where no checkpoint is named."""
        return "base" if self.run is None else self.run.default_checkpoint

    def check_playable(self) -> None:
        """Raise :class:`ConfigError` where the run's world or an engine is neither Troupe's nor trusted."""
        if self.run is not None:
            own = {name: policy.get("engine") or {} for name, policy in self.config["policies"].items()}
            for key, section in (("env", self.config["env"]), ("engine", self.config["engine"]), ("policies", own)):
                (self.trust or NOBODY).check_targets(key, section)

    def policy(self, key: str, agent: str, checkpoint: Checkpoint) -> TeamPolicy:
        """The policy of ``agent`` at ``checkpoint``.  Raises :class:`ConfigError` naming ``key``."""
        team = self.config["team"]
        if self.guest and agent not in team and len(team) == 1:
            (agent,) = team
        if agent not in team:
            source = self.run.path if self.run else "the experiment"
            raise ConfigError(f"{key}: {source} has no policy for agent '{agent}', only for {', '.join(team)}")
        name = team[agent]
        node = self.config["policies"][name]
        sampling = construct(f"policies.{name}.sampling.eval", Sampling, node["sampling"]["eval"])
        if own := (node["sampling"].get("agents") or {}).get(agent):
            where = f"policies.{name}.sampling.agents.{agent}.eval"
            sampling = agent_sampling(where, vars(sampling), own.get("eval") or {})
        tuning = node.get("tuning")
        if tuning == "remote":  # the same at every checkpoint
            server = read_remote(f"policies.{name}", node)
            if self.run is not None and self.trust is not None:
                self.trust.check_server(f"policies.{name}.remote", server.url)
            return RemotePolicy(name, server, sampling)
        if tuning == "scripted":
            return ScriptedPolicy(name, read_skill(f"policies.{name}", node["skill"]), sampling)
        chat, engine = read_chat(f"policies.{name}", node), node.get("engine") or {}
        check_keys(f"policies.{name}", engine)
        policy = partial(LocalPolicy, key, sampling=sampling, chat=chat, configured_as=name, engine=engine)
        if checkpoint == "base":
            return policy("base", node["base"])
        own = node["past"]["of"] if tuning == "past" else name  # whose weights it has
        folder = self._checkpoint(key, checkpoint) / own
        if tuning == "frozen":  # its weights are those of its base model at every checkpoint
            return policy(name, node["base"])
        is_adapter = tuning == "lora" or (tuning == "past" and node.get("lora"))
        return policy(name, str(folder), base_model=node["base"] if is_adapter else None)

    def _checkpoint(self, key: str, checkpoint: Checkpoint) -> Path:
        if self.run is None:
            raise ConfigError(f"checkpoint={checkpoint}: exp has no run; its untrained team is checkpoint=base")
        folder, names = self.run.checkpoint(checkpoint), self.run.checkpoints
        if checkpoint not in names:
            raise ConfigError(
                f"{key}={checkpoint if key == 'checkpoint' else self.run.path}: no checkpoint '{checkpoint}' in "
                f"{folder.parent}; there {'is ' + ', '.join(names) if names else 'are none yet'}; checkpoint=base is "
                "the team before training"
            )
        return folder


@dataclass(frozen=True)
class ServedTeam:
    """The policies of ``team`` behind the server at ``url``, which knows them by their own names, as that of
    ``troupe serve`` does, or all of them as ``model``.  The key of ``TROUPE_API_KEY`` is sent, where it is set."""

    team: TeamSource
    url: str
    model: str | None

    def policy(self, key: str, agent: str, checkpoint: Checkpoint) -> RemotePolicy:
        """The policy of ``agent``; the server has one checkpoint.  Raises :class:`ConfigError` naming ``key``."""
        sampling = replace(self.team, trust=None).policy(key, agent, "base").sampling
        if sampling.top_k:
            raise ConfigError(f"{key}={self.url}: a server takes no top_k, which the policy's sampling.eval has")
        name = self.team.config["team"][agent]
        if (self.team.config["policies"][name].get("chat") or {}).get(PREFILL):
            raise ConfigError(f"{key}={self.url}: a server begins no answers, as policies.{name}.chat.{PREFILL} does")
        key_env = KEY_ENV if os.environ.get(KEY_ENV) else None
        server = call(key, RemoteSettings, url=self.url, model=self.model or name, key_env=key_env)
        return RemotePolicy(name, server, sampling)


def trained_team(key: str, place: str, trust: Trust | None) -> TeamSource:
    """The team of the run in ``place`` (``DIR`` or ``DIR@CHECKPOINT``).  Raises :class:`ConfigError` naming ``key``."""
    run: RunReader = call(key, RunReader, Path(place.partition("@")[0]))
    for needed in NEEDED:
        if needed not in run.config:
            raise ConfigError(f"{key}={run.path}: its config.yaml has no '{needed}'")
    return TeamSource(call(key, check_stored, run), run, trust)


def untrained_team(choice: str, overrides: Sequence[str], trust: Trust = NOBODY) -> TeamSource:
    """The team of ``choice`` (``experiment=NAME``, ``env=NAME``) with its base models.  Raises :class:`ConfigError`
    naming the key that is wrong."""
    words = [*current_search_path(), choice, f"name={choice.partition('=')[2]}", "run_dir=none", *overrides]
    check_choices(parsed(words))
    cfg = compose("train", overrides=words)
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[assignment]
    read_config(config, OmegaConf.to_yaml(cfg, resolve=False))
    return TeamSource(config, trust=trust)


def read_team(keys: Mapping[str, Any]) -> TeamSource:
    """The team that ``run``, ``exp`` or ``env_name`` names.  Raises :class:`ConfigError`."""
    check_source(keys)
    trust = Trust.of(keys["trust"])
    if keys["run"] is None:
        choice = f"env={keys['env_name']}" if keys["exp"] is None else f"experiment={keys['exp']}"
        return untrained_team(choice, keys["overrides"], trust)
    if keys["overrides"]:
        raise ConfigError("overrides belong to exp=NAME; a run has its own configuration")
    return trained_team("run", keys["run"], trust)


def read_request(keys: Mapping[str, Any], team: TeamSource) -> EvalRequest:
    """The request; keys that are null have the values of ``team``'s configuration.  Raises :class:`ConfigError`."""
    keys = {**keys, "checkpoint": keys["checkpoint"] or team.default_checkpoint}
    return requested(keys, team.config, team.run is not None)


def other_teams(request: EvalRequest, team: TeamSource) -> dict[str, PolicySource]:
    """By agent, the teams of the runs that ``agents.NAME=DIR`` names, and ``team`` behind the servers that
    ``agents.NAME=URL`` names.  Raises :class:`ConfigError`."""
    teams: dict[str, PolicySource] = {}
    for agent, place in request.agents.items():
        if address := server_address(place):
            teams[agent] = ServedTeam(team, *address)
        elif place != "base":
            teams[agent] = replace(trained_team(f"agents.{agent}", place, team.trust), guest=True)
    return teams


def build_conditions(request: EvalRequest, team: TeamSource) -> list[Condition]:
    """Each world at each temperature.  A greedy team plays each task once: its samples would be equal.

    Raises :class:`ConfigError` naming the key that is wrong.
    """
    team.check_playable()
    others, conditions = other_teams(request, team), []
    for labels, config in _worlds(request, team):
        world = build_world("world", config)
        assignment = assign(request, world.agents, team, others)
        count = call("world", world.task_count, request.split) if request.tasks is None else request.tasks
        if not count:
            raise ConfigError(f"world: it has no {request.split} tasks")
        with notice(f"drawing {number_of(count, f'{request.split} task')}, some seconds in this world ..."):
            key = f"tasks={count}, split={request.split}"
            tasks = call(key, TaskSource(world).tasks, request.split, count, request.task_seed)
        for temperature in dict.fromkeys(request.temperature):
            name = condition_name(labels, temperature)
            samples = 1 if temperature == 0 else request.samples
            conditions.append(Condition(name, config, world, tasks, assignment, temperature, samples))
    return conditions


def _worlds(request: EvalRequest, team: TeamSource) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """(Labels, configuration) of each world: of the benchmarks, or else the team's own."""
    if not request.benchmark:
        yield from world_variants(request.world, team.config["env"])
    for benchmark in benchmarks(request, team.config):
        for labels, config in world_variants(request.world, benchmark.world):
            yield [benchmark.name, *labels], config


async def run_conditions(
    request: EvalRequest,
    conditions: Sequence[Condition],
    factory: ActorFactory,
    played: Played | None = None,
    faults: FaultSettings = DEFAULT_FAULTS,
    partial: PartialEvaluation = NOTHING_KEPT,
) -> list[ConditionResult]:
    """Play ``conditions`` with the actors that ``factory`` makes, and close its engines; ``played`` counts meanwhile,
    ``partial`` keeps samples.

    Raises :class:`ConfigError` where weights cannot be loaded or a policy cannot read a world, before anything is
    played; :class:`..errors.LostEpisodesError` where more episodes are lost than ``faults`` allow.
    """
    try:
        actors = factory.actors(conditions)
        return await play_conditions(request, conditions, actors, played or Played(), faults, partial)
    finally:
        await factory.close()
