"""From policies to a team that speaks and learns: models, pools, engines, clients."""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import lightning as L
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..algorithms.credit.actor_critic import ActorCritic
from ..algorithms.credit.base import CreditRule
from ..cluster.execution import Execution
from ..errors import ConfigError
from ..models.bases.base_models import resolve
from ..models.bases.hub import check_available
from ..models.bases.loading import load_adapted, load_model, load_shape, load_tokenizer
from ..models.bases.reading import full_base
from ..models.learning.adapters import AdapterModule, attach, base_of
from ..models.learning.critic import Critic, CriticModule
from ..models.learning.policy import PolicyModule
from ..models.learning.ranks import Ranks
from ..models.pools.critics import Critics
from ..models.pools.fabrics import fabric_of, launch, process_count
from ..models.pools.handles import CriticHandle, PolicyHandle
from ..models.pools.pool import Pool
from ..models.pools.processes import LocalProcesses, RayProcesses
from ..models.pools.proxies import CriticProxy, PoolProxy
from ..models.pools.strategies import StrategySettings
from ..models.pools.team import Team
from ..rollout.chat_codec import ChatCodec
from ..rollout.engines.base import Engine
from ..rollout.engines.lora import Adapted
from ..rollout.engines.ray.engine import RayEngine, RayReplicas
from ..rollout.engines.remote.engine import RemoteEngine
from ..rollout.engines.replicas import Replicas, shells
from ..rollout.engines.requests import derive
from ..rollout.policy_client import PolicyClient
from ..rollout.scripted import NoEngine, ScriptedClient
from .critics import KEY, CriticSpec
from .instantiation import partially
from .policies import PolicySpec, backbones
from .sections import count_of


class Closable(Protocol):
    """An engine, a pool, a team, a sampler."""

    async def close(self) -> None: ...


def close_now(part: Closable) -> None:
    """Close ``part``, on an event loop of its own: there may be one that is running (a notebook), or none."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, part.close()).result()


LOCAL = Execution()


@dataclass
class LoadedBackbone:
    """One backbone: the policies that live on it, those of them that learn, and the engine that they speak through."""

    engine: Engine
    tokenizer: PreTrainedTokenizerBase | ChatCodec
    context: int
    handles: Mapping[str, PolicyHandle] = field(default_factory=dict)


def build_team(
    policies: Mapping[str, PolicySpec],
    agents: Mapping[str, str],
    strategy: StrategySettings,
    seed: int,
    ranks: Ranks,
    execution: Execution = LOCAL,
) -> Team:
    """Pools, engines and clients of policies that have passed :func:`.checks.check_policies`; ``agents`` is the team
    map.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong; what was started by then is closed.
    """
    learning: dict[str, PolicyHandle] = {}
    of: dict[str, LoadedBackbone] = {}
    for name, spec in policies.items():
        if not spec.has_model:
            engine = NoEngine() if spec.remote is None else RemoteEngine(name, spec.remote)
            of[name] = LoadedBackbone(engine, ChatCodec(), sys.maxsize)
    with ExitStack() as failed:
        for specs in backbones(policies):
            place = specs[0].place
            if execution.on_ray:
                backbone = _on_ray(specs, place or strategy, seed, execution, failed)
            elif place is not None:
                backbone = _placed(specs, place, seed, failed)
            else:
                backbone = _here(specs, strategy, seed, ranks)
            failed.callback(close_now, backbone.engine)
            learning |= backbone.handles
            of |= {spec.name: backbone for spec in specs}
        failed.pop_all()
    training: dict[str, PolicyClient] = {}
    evaluation: dict[str, PolicyClient] = {}
    for agent, name in agents.items():
        spec, backbone = policies[name], of[name]
        for clients, sampling in zip((training, evaluation), spec.sampling_of(agent), strict=True):
            make = PolicyClient if spec.skill is None else partial(ScriptedClient, skill=spec.skill)
            clients[agent] = make(name, backbone.engine, backbone.tokenizer, backbone.context, sampling, spec.chat)
    on_gpu = execution.resources.pool.gpus > 0 if execution.on_ray else None
    return Team(
        policies={name: learning[name] for name in policies if name in learning},
        engines={name: of[name].engine for name in policies},
        tokenizers={name: of[name].tokenizer for name in policies},
        training=training,
        evaluation=evaluation,
        schedules={name: spec.schedule for name, spec in policies.items() if spec.schedule is not None},
        ranks=ranks,
        coarseness={name: (spec.place or strategy).coarseness(on_gpu=on_gpu) for name, spec in policies.items()},
    )


def _here(specs: Sequence[PolicySpec], strategy: StrategySettings, seed: int, ranks: Ranks) -> LoadedBackbone:
    """A policy with a pool of its own; or adapters and frozen policies on one base, which learner and engine hold in
    memory once."""
    model, tokenizer, context = _loaded(specs, strategy)
    fabric = fabric_of(strategy)
    launch(fabric)
    if all(spec.train_config is None for spec in specs):
        return LoadedBackbone(_engine_alone(specs, fabric, model, tokenizer, seed), tokenizer, context)
    # A pool that learns the base, or shards it, leaves none for the engine, which otherwise reads the same memory.
    own = specs[0].full_weights or "weights" in strategy.shards
    whole = _on_device(fabric, copy.deepcopy(model)) if own else None
    module = _module(specs, model, seed)
    pool = _pool(module, model, fabric, strategy, seed, ranks)
    speaking = build_engine(specs[0].engine, _speakers(specs, module, whole), tokenizer, _prompts(specs))
    return LoadedBackbone(speaking, tokenizer, context, pool.policies)


def _placed(specs: Sequence[PolicySpec], place: StrategySettings, seed: int, failed: ExitStack) -> LoadedBackbone:
    """A pool in processes of its own, and its engine in this one, on the first of the pool's devices."""
    model, tokenizer, context = _loaded(specs, place)
    names = [spec.name for spec in specs]
    fabric = fabric_of(place)
    build = partial(_pool_in_place, specs, place, seed)
    pool = PoolProxy(names, LocalProcesses(f"pool {', '.join(names)}", build, process_count(fabric)))
    failed.callback(close_now, pool)
    speaking = _engine_alone(specs, fabric, model, tokenizer, seed)
    return LoadedBackbone(speaking, tokenizer, context, pool.policies)


def _engine_alone(
    specs: Sequence[PolicySpec],
    fabric: L.Fabric,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
) -> Engine:
    """The engine of ``specs`` on ``model``, which no pool shares."""
    model = _on_device(fabric, model)
    models: Mapping[str, PreTrainedModel | Adapted] = {spec.name: model for spec in specs}
    if any(spec.lora is not None for spec in specs):
        models = _speakers(specs, _module(specs, model, seed))
    return build_engine(specs[0].engine, models, tokenizer, _prompts(specs))


def _on_ray(
    specs: Sequence[PolicySpec], place: StrategySettings, seed: int, execution: Execution, failed: ExitStack
) -> LoadedBackbone:
    """A pool and its engine as actors; here are only the tokenizer and the handles."""
    spec, names = specs[0], [spec.name for spec in specs]
    tokenizer, shape = load_tokenizer(spec.base), load_shape(full_base(spec.base))
    handles: Mapping[str, PolicyHandle] = {}
    if any(spec.train_config is not None for spec in specs):
        build, each = partial(_pool_in_place, specs, place, seed), execution.resources.pool
        name, count = f"pool {', '.join(names)}", place.processes or 1
        pool = PoolProxy(names, RayProcesses(name, build, count, each, execution))
        failed.callback(close_now, pool)
        handles = pool.policies
    engine = _engine_on_ray(specs, replace(place, strategy="auto", num_nodes=1), seed, execution)
    return LoadedBackbone(engine, tokenizer, shape.max_position_embeddings, handles)


def _engine_on_ray(
    specs: Sequence[PolicySpec], place: StrategySettings, seed: int, execution: Execution
) -> RayEngine | RayReplicas:
    """An actor, or one for each replica."""
    engine, names = specs[0].engine, ", ".join(spec.name for spec in specs)
    lockstep, count = bool(engine.get("lockstep")), count_of(engine, "data_parallel")
    if count == 1:
        return RayEngine(names, partial(_engine_in_place, specs, place, seed), execution, lockstep)
    single = [replace(spec, engine={**spec.engine, "data_parallel": 1}) for spec in specs]
    build = partial(_engine_in_place, single, place, seed)
    return RayReplicas.start(names, build, execution, lockstep, count)


def _engine_in_place(specs: Sequence[PolicySpec], place: StrategySettings, seed: int) -> Engine:
    """The engine, in its process."""
    model, tokenizer, _ = _loaded(specs, place)
    return _engine_alone(specs, fabric_of(place), model, tokenizer, seed)


def _pool_in_place(specs: Sequence[PolicySpec], place: StrategySettings, seed: int) -> Pool:
    """The pool, in each of its processes."""
    model, _, _ = _loaded(specs, place)
    fabric = fabric_of(place)
    ranks = launch(fabric)
    return _pool(_module(specs, model, seed), model, fabric, place, seed, ranks)


def _module(specs: Sequence[PolicySpec], model: PreTrainedModel, seed: int) -> PolicyModule:
    """Of a policy that has all weights of ``model``, or of adapters on it."""
    learning = {spec.name: spec.train_config for spec in specs if spec.train_config is not None}
    if specs[0].full_weights:
        return PolicyModule(model, learning)
    settings = {spec.name: spec.lora for spec in specs if spec.lora is not None}
    seeds = {name: derive(seed, "adapter", name) for name in settings}
    return AdapterModule(attach(model, specs[0].base, settings, seeds), learning)


def _speakers(
    specs: Sequence[PolicySpec], module: PolicyModule, whole: PreTrainedModel | None = None
) -> dict[str, PreTrainedModel | Adapted]:
    """Models of an engine: adapters and frozen policies on ``whole``, or on the memory of ``module``."""
    base = base_of(module.model) if whole is None else whole
    return {
        spec.name: base if spec.lora is None else Adapted(base, module.weights(spec.name), spec.lora.scale)
        for spec in specs
    }


def _on_device(fabric: L.Fabric, model: PreTrainedModel) -> PreTrainedModel:
    """``model`` itself, in the dtype and on the device that ``fabric`` gives to a pool."""
    moved: PreTrainedModel = fabric.to_device(fabric.strategy.precision.convert_module(model))
    return moved


def _pool(
    module: PolicyModule,
    model: PreTrainedModel,
    fabric: L.Fabric,
    strategy: StrategySettings,
    seed: int,
    ranks: Ranks,
) -> Pool:
    """``model`` is the transformer in ``module``."""
    recompute(model, strategy)
    gathered = getattr(strategy.strategy, "checkpoints", None) == "gathered"
    return Pool(module, fabric, seed=seed, ranks=ranks, gathered=gathered)


def _loaded(
    specs: Sequence[PolicySpec], strategy: StrategySettings
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, int]:
    """Model, tokenizer and context of the base that ``specs`` have in common."""
    dtype = strategy.read_dtype if specs[0].full_weights else strategy.frozen_dtype
    model, tokenizer = load_base(f"policies.{specs[0].name}.base", specs[0].base, dtype)
    return model, tokenizer, model.config.max_position_embeddings


def recompute(model: PreTrainedModel, strategy: StrategySettings) -> None:
    """Let ``model`` compute its activations again in the backward pass, where ``strategy`` says so."""
    if strategy.gradient_checkpointing:
        named = "activation_checkpointing_enable"  # vLLM's transformers, 5.19, has the older one
        enable = getattr(model, named if hasattr(model, named) else "gradient_checkpointing_enable")
        enable({"use_reentrant": False})


def _prompts(specs: Sequence[PolicySpec]) -> list[tuple[int, ...]]:
    return [prompt for spec in specs for prompt in spec.prompts]


def build_engine(
    node: Mapping[str, Any],
    models: Mapping[str, PreTrainedModel | Adapted],
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[tuple[int, ...]] = (),
) -> Engine:
    """The engine that ``node`` names, for policies with one tokenizer, tested on ``prompts`` of the world's where they
    are known.  It owns the models from here on.
    """
    make, count = partially("engine", node), count_of(node, "data_parallel")
    if count == 1:
        engine: Engine = make(models=models, tokenizer=tokenizer, prompts=prompts)
        return engine
    engines: list[Engine] = []
    with ExitStack() as failed:
        for replica in range(count):
            engines.append(make(models=shells(models), tokenizer=tokenizer, prompts=prompts, replica=replica))
            failed.callback(close_now, engines[-1])
        failed.pop_all()
    return Replicas(engines, bool(node.get("lockstep")))


def load_base(
    key: str, base: str, dtype: torch.dtype = torch.float32
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal LM in ``dtype``, and its tokenizer.

    Raises :class:`ConfigError` naming ``key`` where they cannot be loaded.
    """
    try:
        check_available(resolve(base))
        return load_model(base, dtype), load_tokenizer(base)
    except (OSError, ValueError) as error:  # missing, or damaged in some file
        raise ConfigError(f"{key}={base} cannot be loaded: {error}") from error


def load_speaker(
    key: str, base: str, below: str | None, model: PreTrainedModel | None = None
) -> tuple[PreTrainedModel | Adapted, PreTrainedTokenizerBase, int]:
    """What an engine needs to speak with ``base``, an adapter where there is a model ``below`` it; and its context.
    ``model`` is the model itself (``base`` or ``below``), where it is in memory already.

    Raises :class:`ConfigError` naming ``key`` where they cannot be loaded.
    """
    if below is None and model is None:
        model, tokenizer = load_base(key, base)
        return model, tokenizer, model.config.max_position_embeddings
    try:
        tokenizer = load_tokenizer(base)
        if model is not None and below is None:
            return model, tokenizer, model.config.max_position_embeddings
        adapted = load_adapted(Path(base), model or below)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key}={base}{f' on {below}' if below else ''} cannot be loaded: {error}") from error
    return adapted, tokenizer, adapted.model.config.max_position_embeddings


def build_critics(
    specs: Mapping[str, CriticSpec],
    credit: CreditRule,
    strategy: StrategySettings,
    seed: int,
    ranks: Ranks,
    execution: Execution,
) -> Critics:
    """The critics of ``specs``, which have passed :func:`.checks.check_critics`, for ``credit``."""
    if not isinstance(credit, ActorCritic):
        return Critics()
    critics: dict[str, CriticHandle] = {}
    with ExitStack() as failed:
        for name, spec in specs.items():
            if spec.place is None:
                critics[name] = _critic(spec, strategy, seed, ranks)
            else:
                build, each = partial(_critic, spec, spec.place, seed, Ranks()), execution.resources.critic
                critics[name] = CriticProxy(RayProcesses(f"critic {name}", build, 1, each, execution))
            failed.callback(close_now, critics[name])
        failed.pop_all()
    return Critics(credit, critics)


def _critic(spec: CriticSpec, strategy: StrategySettings, seed: int, ranks: Ranks) -> Critic:
    """The critic, in its process."""
    model, _ = load_base(f"{KEY}.base", spec.base)
    module = CriticModule(model)
    recompute(module.backbone, strategy)
    fabric = fabric_of(strategy)
    launch(fabric)
    return Critic(spec.name, module, spec.optimizer, spec.settings, fabric, seed=seed, ranks=ranks)
