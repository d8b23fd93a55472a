"""The objects of a run that need no model."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..algorithms.credit.base import CreditRule
from ..envs.base import TeamEnv
from ..errors import ConfigError, check_whole
from ..models.pools.strategies import DeepSpeed, Sharded, StrategySettings
from ..rollout.samplers.sampler import Sampler
from ..routing import Router
from ..runs.budget import LoopSettings
from .combinations import check_asynchrony, check_on_ray
from .critics import CriticSpec, read_critics
from .instantiation import build_world, construct, instantiated, part
from .policies import PolicySpec, cautions, check_agents, read_policies
from .resume import binding
from .sections import RunConfig, read_config

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
        return self.config.loop.settings


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
    objective = part("algorithm.objective", run.algorithm.objective, "sized")
    sampler.check(world)
    credit.check(sampler.k, sampler.topology)
    strategy = _strategy(run.strategy)
    policies = read_policies(run.policies, run.algorithm, objective, strategy, run.engine, run.execution)
    check_agents(policies, run.team)
    _check_rows("engine", run.engine, sampler.k)
    for policy in policies.values():
        _check_rows(policy.engine_key, policy.engine, sampler.k)
    _check_weight(credit, policies)
    _check_kl(credit, policies)
    critics = read_critics(run.algorithm.critic, credit, policies, sampler.resample, strategy, run.execution)
    if isinstance(strategy.strategy, Sharded) and credit.kl:
        raise ConfigError(
            f"algorithm.credit.kl={credit.kl}: the reference cannot be sharded; give strategy=single_device or ddp"
        )
    if isinstance(strategy.strategy, DeepSpeed) and strategy.strategy.stage == 3:
        for policy in policies.values():
            if policy.lora is not None:
                raise ConfigError(
                    f"policies.{policy.name}.tuning=lora: DeepSpeed's ZeRO 3 has one optimizer for a model, and each "
                    "adapter on a base has its own; give strategy=fsdp2, which shards the base, or deepspeed_zero2"
                )
    check_asynchrony(run.loop.settings, sampler, strategy, policies, critics, run.execution)
    if run.execution.on_ray:
        check_on_ray(run.execution, policies, critics)
        strategy = replace(strategy, strategy="auto", devices=1, accelerator="cpu")  # of the run's process
    return Parts(run, binding(config), world, router, sampler, credit, policies, critics, strategy)


def warn(parts: Parts) -> None:
    """Log settings that are legal but probably a mistake."""
    for caution in cautions(parts.policies, parts.settings.iterations):
        log.warning(caution)
    if not parts.world.begins_at_reset and any(spec.engine.get("lockstep") for spec in parts.policies.values()):
        log.warning(
            "env: with loop.lockstep=true a program that waits for anything but an engine holds all other episodes, "
            "for env.limit_s at most; give loop.lockstep=false where programs wait for long (docs/gateway.md)"
        )


def _check_rows(key: str, engine: Mapping[str, Any], k: int) -> None:
    """Raise :class:`ConfigError` where an engine cannot decode ``k`` candidates together."""
    rows = engine.get("max_batch_rows")
    if rows is not None:
        check_whole(f"{key}.max_batch_rows", rows, 1)
    if rows is not None and k > rows:
        raise ConfigError(f"algorithm.sampler.k={k} is more than {key}.max_batch_rows={rows} decode together")


def _check_weight(credit: CreditRule, policies: Mapping[str, PolicySpec]) -> None:
    for name, policy in policies.items():
        by_tokens = policy.train_config and policy.train_config.objective.normalisation == "token_mean"
        if credit.weight == "episode" and by_tokens:
            raise ConfigError(
                "algorithm.credit.weight=episode has no effect with algorithm.objective.normalisation=token_mean "
                f"(policy '{name}'), by which every token of a mini-batch weighs the same; give weight=message, or the "
                "normalisation constant or sequence_sum"
            )


def _check_kl(credit: CreditRule, policies: Mapping[str, PolicySpec]) -> None:
    """The credit rule and the objectives of all policies must agree on a penalty that the rule takes off."""
    for name, policy in policies.items():
        if policy.train_config is None:
            continue
        objective = policy.train_config.objective
        kl = objective.kl if objective.kl_in == "credit" else 0.0
        if kl != credit.kl:
            raise ConfigError(
                f"algorithm.credit.kl={credit.kl}, but the objective of policy '{name}' has kl={objective.kl} and "
                f"kl_in={objective.kl_in}: a penalty in the credit (algorithm=reinforce_pp) needs kl_in=credit and the "
                "same kl in both"
            )


def _strategy(section: Mapping[str, Any]) -> StrategySettings:
    named = section.get("strategy")
    sharded = {"strategy": instantiated("strategy.strategy", named)} if isinstance(named, Mapping) else {}
    return construct("strategy", StrategySettings, {**section, **sharded})
