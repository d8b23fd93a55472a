"""The objects of a run that need no model, and the settings of them that cannot go together: training and a dry run ask
the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..algorithms.credit.base import CreditRule
from ..cluster.execution import Execution
from ..envs.base import TeamEnv
from ..errors import ConfigError, check_whole
from ..evaluation.self_play import PastSettings
from ..models.pools.strategies import DeepSpeed, Sharded, StrategySettings
from ..rollout.samplers.sampler import Sampler
from ..routing import Router
from ..runs.budget import LoopSettings
from .critics import CriticSpec, read_critics
from .instantiation import build_world, construct, instantiated, part
from .policies import PolicySpec, cautions, check_agents, check_past, read_policies
from .resume import binding
from .sections import RunConfig, count_of, engine_name, read_config

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """The checked configuration of a run and its objects; ``binding``: the keys that a continued run cannot change."""

    config: RunConfig
    binding: Mapping[str, Any]
    world: TeamEnv
    router: Router
    sampler: Sampler
    credit: CreditRule
    policies: dict[str, PolicySpec]
    critics: dict[str, CriticSpec]
    strategy: StrategySettings

    @property
    def settings(self) -> LoopSettings:
        return self.config.loop

    @property
    def past(self) -> dict[str, PastSettings]:
        """By policy with the weights of another one."""
        return {name: spec.past for name, spec in self.policies.items() if spec.past is not None}


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration.  Raises omegaconf's error for a value that is missing."""
    return OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[return-value]


def parts_of(config: dict[str, Any], unresolved: str | None) -> Parts:
    """The parts that ``config`` names; ``unresolved`` is its yaml with interpolations.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong.
    """
    run = read_config(config, unresolved)
    world = build_world("env", run.env)
    frozen = [name for name, policy in run.policies.items() if not policy.learns]
    router = Router(run.team, world.agents, tuple(run.policies), frozen)
    sampler = run.algorithm.build_sampler()
    credit = part("algorithm.credit", run.algorithm.credit, "weight")
    sampler.check(world)
    credit.check(sampler.k, sampler.topology)
    named = run.strategy.get("strategy")
    sharded = {"strategy": instantiated("strategy.strategy", named)} if isinstance(named, Mapping) else {}
    strategy = construct("strategy", StrategySettings, {**run.strategy, **sharded})
    policies = read_policies(run, strategy)
    check_agents(policies, run.team)
    check_past(policies)
    critics = read_critics(run, credit, policies, sampler.resample, strategy)
    parts = Parts(run, binding(config), world, router, sampler, credit, policies, critics, strategy)
    _check_sides(parts)
    _check_rows(parts)
    _check_credit(parts)
    _check_sharding(parts)
    _check_asynchrony(parts)
    if not run.execution.on_ray:
        return parts
    _check_on_ray(run.execution, policies, critics)
    return replace(parts, strategy=replace(strategy, strategy="auto", devices=1, accelerator="cpu"))  # of this process


def warn(parts: Parts) -> None:
    """Log settings that are legal but probably a mistake."""
    for caution in cautions(parts.policies, parts.settings.iterations):
        log.warning(caution)
    if not parts.world.begins_at_reset and any(spec.engine.get("lockstep") for spec in parts.policies.values()):
        log.warning(
            "env: with loop.lockstep=true a program that waits for anything but an engine holds all other episodes, "
            "for env.limit_s at most; give loop.lockstep=false where programs wait for long (docs/gateway.md)"
        )


# ---- what cannot go together: each check raises ConfigError naming the key and the remedy ----------------------------


def _check_sides(parts: Parts) -> None:
    """Refuse what would let the other side of a world play for the team, and what opponents' weights cannot follow."""
    run, opponents = parts.config, parts.world.opponents
    for agent in opponents:
        if parts.policies[run.team[agent]].train_config is not None:
            raise ConfigError(
                f"team.{agent}={run.team[agent]}: agent '{agent}' plays against the team, whose reward is its loss, so "
                f"that its policy cannot learn here; give policies.{run.team[agent]}.tuning=past, frozen or scripted"
            )
    if opponents and parts.sampler.topology != "chain":
        raise ConfigError(
            f"algorithm.sampler ({type(parts.sampler).__name__}): of an opponent's candidates the one that is best for "
            "the team would go on; give an algorithm with chains (rloo, grpo, role_baselines)"
        )
    if run.loop.staleness or run.execution.on_ray or parts.strategy.strategy != "auto":
        for name in parts.past:
            raise ConfigError(
                f"policies.{name}.tuning=past: its weights are read from the run's checkpoints before each iteration, "
                "by a run of one process that waits for its updates; give loop.staleness=0, execution=local and "
                "strategy=single_device"
            )


def _check_rows(parts: Parts) -> None:
    """Refuse an engine that cannot decode the candidates of a node together."""
    engines = {each.engine_key: each.engine for each in parts.policies.values()} | {"engine": parts.config.engine}
    for key, engine in engines.items():
        if (rows := engine.get("max_batch_rows")) is not None:
            check_whole(f"{key}.max_batch_rows", rows, 1)
            if (k := parts.sampler.k) > rows:
                raise ConfigError(f"algorithm.sampler.k={k} is more than {key}.max_batch_rows={rows} decode together")


def _check_credit(parts: Parts) -> None:
    """The credit rule and the objectives of all policies must agree on weights, and on a penalty that the rule takes
    off."""
    credit = parts.credit
    for name, policy in parts.policies.items():
        if policy.train_config is None:
            continue
        objective = policy.train_config.objective
        if credit.weight == "episode" and objective.normalisation == "token_mean":
            raise ConfigError(
                "algorithm.credit.weight=episode has no effect with algorithm.objective.normalisation=token_mean "
                f"(policy '{name}'), by which every token of a mini-batch weighs the same; give weight=message, or the "
                "normalisation constant or sequence_sum"
            )
        if credit.kl != (objective.kl if objective.kl_in == "credit" else 0.0):
            raise ConfigError(
                f"algorithm.credit.kl={credit.kl}, but the objective of policy '{name}' has kl={objective.kl} and "
                f"kl_in={objective.kl_in}: a penalty in the credit (algorithm=reinforce_pp) needs kl_in=credit and the "
                "same kl in both"
            )


def _check_sharding(parts: Parts) -> None:
    sharding = parts.strategy.strategy
    if isinstance(sharding, Sharded) and parts.credit.kl:
        raise ConfigError(
            f"algorithm.credit.kl={parts.credit.kl}: a reference cannot be sharded; give strategy=single_device or ddp"
        )
    if isinstance(sharding, DeepSpeed) and sharding.stage == 3:
        for name in (name for name, policy in parts.policies.items() if policy.lora is not None):
            raise ConfigError(
                f"policies.{name}.tuning=lora: DeepSpeed's ZeRO 3 has one optimizer for a model, and each adapter on a "
                "base has its own; give strategy=fsdp2, which shards the base, or deepspeed_zero2"
            )


def _check_asynchrony(parts: Parts) -> None:
    """Refuse what cannot go on while policies learn."""
    settings = parts.settings
    for spec in parts.policies.values():
        _check_in_flight(settings, spec)
    if not settings.staleness:
        return
    label = f"loop.staleness={settings.staleness}"
    if parts.strategy.strategy != "auto" and not parts.config.execution.on_ray:  # there a strategy is that of pools
        raise ConfigError(
            f"{label} needs a run of one process: several would have to agree on which tasks have ended, in the middle "
            "of an update. Give strategy=single_device, and pools processes of their own (policies.NAME.devices, "
            "policies.NAME.strategy)"
        )
    if parts.sampler.resample:
        raise ConfigError(
            f"{label}: algorithm.sampler.resample={parts.sampler.resample} plays further tasks once it has seen the "
            "groups of an iteration, so that nothing of it can be played ahead; give resample=0, or loop.staleness=0"
        )
    for spec in parts.policies.values():
        _check_ahead(label, spec)
    _check_precision(label, parts)
    if settings.lockstep:
        raise ConfigError(
            f"{label} with loop.lockstep=true: in common rounds nobody decodes while a world waits, and how much of an "
            "episode an update sees depends on time, so that a seed cannot fix the run; give loop.lockstep=false"
        )


def _check_in_flight(settings: LoopSettings, spec: PolicySpec) -> None:
    if not settings.staleness and (settings.in_flight or spec.engine.get("in_flight")):
        key = "loop.in_flight" if settings.in_flight else f"{spec.engine_key}.in_flight"
        raise ConfigError(
            f"{key}=true with loop.staleness=0: no completion is under way when weights come; give loop.staleness=1 or "
            f"more, or {key}=false"
        )
    if settings.in_flight and spec.train_config is not None and "in_flight" not in spec.engine:
        raise ConfigError(
            f"loop.in_flight=true: the engine of policy '{spec.name}', {engine_name(spec.engine)}, loads weights "
            "between two completions alone; give engine=torch, or loop.in_flight=false"
        )


def _check_ahead(label: str, spec: PolicySpec) -> None:
    """Refuse an engine that cannot generate during an update, and an objective that takes old messages for new."""
    if spec.engine.get("lockstep"):
        key = "loop.lockstep" if spec.engine_key == "engine" else f"{spec.engine_key}.lockstep"
        raise ConfigError(
            f"{label}: policy '{spec.name}' decodes in lockstep, in which nobody decodes while a world waits; give "
            f"{key}=false"
        )
    if spec.engine.get("sleep"):
        raise ConfigError(
            f"{label}: with {spec.engine_key}.sleep={spec.engine['sleep']} the engine gives its memory to the learner "
            f"during an update, and could not generate meanwhile; give {spec.engine_key}.sleep=0, and memory for both"
        )
    if spec.train_config is not None and not spec.train_config.objective.importance_cap:
        raise ConfigError(
            f"{label}: policy '{spec.name}' would learn from messages of its older versions as if they were its own; "
            "give algorithm.objective.importance_cap=2 (truncated importance sampling)"
        )


def _check_precision(label: str, parts: Parts) -> None:
    """Under these precisions Fabric sets torch's default dtype while a module computes, for all threads."""
    policies, precision = parts.policies.values(), parts.strategy.precision
    places = [critic.place for critic in parts.critics.values()]
    places += [spec.place for spec in policies if spec.train_config is not None]
    decodes_here = any(engine_name(spec.engine) == "TorchEngine" for spec in policies)
    if precision in ("bf16-true", "64-true") and None in places and decodes_here:
        raise ConfigError(
            f"{label}: strategy.precision={precision} sets torch's default dtype for all threads of the process during "
            "an update, and the torch engine decodes in one of them; give 32-true or bf16-mixed, pools processes of "
            "their own (policies.NAME.devices), or engine=vllm"
        )


def _check_on_ray(execution: Execution, policies: Mapping[str, PolicySpec], critics: Mapping[str, CriticSpec]) -> None:
    """Refuse what has no actor, or one without the resources that it needs."""
    for name, spec in policies.items():
        if not spec.has_model:
            continue
        if (engine := engine_name(spec.engine)) not in ("TorchEngine", "VllmEngine"):
            raise ConfigError(
                f"{spec.engine_key}: {engine} was never run in an actor of Ray; with execution=ray give engine=torch "
                "or engine=vllm"
            )
        if engine == "VllmEngine":
            _check_vllm(execution, spec)
        if execution.worlds and spec.engine.get("lockstep"):
            raise ConfigError(
                f"execution.worlds={execution.worlds}: rounds of lockstep begin when all episodes of one process wait, "
                "and these are in several; give loop.lockstep=false, or execution.worlds=0"
            )
        if spec.place is not None:
            _check_device(execution, f"policy '{name}'", spec.place.accelerator, "pool")
            shards = count_of(spec.engine, "tensor_parallel")
            _check_device(execution, f"policy '{name}'", spec.place.accelerator, "engine", spec.engine_key, shards)
    for name, critic in critics.items():
        assert critic.place is not None, "on Ray each has one"
        _check_device(execution, f"critic '{name}'", critic.place.accelerator, "critic")


def _check_device(
    execution: Execution, title: str, accelerator: str, kind: str, engine_key: str = "", shards: int = 1
) -> None:
    """``shards`` are those of a tensor parallel engine, on a GPU each."""
    key, gpus = f"execution.resources.{kind}.gpus", getattr(execution.resources, kind).gpus
    if accelerator in ("cuda", "gpu") and not gpus:
        raise ConfigError(
            f"strategy.accelerator={accelerator}: Ray hides GPUs that are not asked for; give {key}={shards}"
        )
    if accelerator == "cpu" and gpus:
        raise ConfigError(f"{key}={gpus:g}: {title} has the CPU (strategy.accelerator)")
    if shards > 1 and gpus not in (0, shards):
        raise ConfigError(
            f"{key}={gpus:g}: with {engine_key}.tensor_parallel={shards} an engine computes on {shards} GPUs; give "
            f"{shards}"
        )
    if shards == 1 and gpus > 1:
        raise ConfigError(f"{key}={gpus:g}: each of these processes computes on one GPU; give 1")


def _check_vllm(execution: Execution, spec: PolicySpec) -> None:
    """Its processes have what Ray gives to their actor: a GPU for each shard of the model, or cores."""
    engine, key, each = spec.engine, spec.engine_key, execution.resources.engine
    if (device := engine.get("device", "auto")) != "auto":
        raise ConfigError(f"{key}.device={device}: with execution=ray Ray chooses the GPU of an engine; give auto")
    if (transfer := engine.get("transfer", "auto")) == "nccl":
        raise ConfigError(
            f"{key}.transfer={transfer}: with execution=ray vLLM has the GPU of its actor on which the weights arrive; "
            "give auto"
        )
    threads, shards = count_of(engine, "threads"), count_of(engine, "tensor_parallel")
    if threads * shards > max(1, each.cpus) and not each.gpus:
        with_shards = "" if shards == 1 else f" with {key}.tensor_parallel={shards}"
        raise ConfigError(
            f"execution.resources.engine.cpus={each.cpus:g} is too little for {key}.threads={threads}{with_shards}; "
            f"give {threads * shards}"
        )
