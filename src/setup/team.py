"""From policies to a team that speaks and learns: models, pools, engines, clients."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import ConfigError
from ..models.adapter_module import AdapterModule
from ..models.adapters import attach, base_of
from ..models.base_models import resolve
from ..models.hub import check_available
from ..models.loading import load_adapted, load_model, load_tokenizer
from ..models.policy import PolicyModule
from ..models.pool import Policy, Pool
from ..models.ranks import Ranks
from ..models.strategies import StrategySettings, launch
from ..models.team import Team
from ..rollout.chat_codec import ChatCodec
from ..rollout.engines.base import Engine
from ..rollout.engines.lora import Adapted
from ..rollout.engines.remote.engine import RemoteEngine
from ..rollout.policy_client import PolicyClient
from ..rollout.seeds import derive
from .instantiation import partially
from .policies import PolicySpec


@dataclass
class LoadedBackbone:
    """One backbone: the policies that live on it, those of them that learn, and the engine that they speak through."""

    engine: Engine
    tokenizer: PreTrainedTokenizerBase | ChatCodec
    context: int
    handles: Mapping[str, Policy] = field(default_factory=dict)


def build_team(
    policies: Mapping[str, PolicySpec],
    agents: Mapping[str, str],
    strategy: StrategySettings,
    engine: Mapping[str, Any],
    seed: int,
    ranks: Ranks,
) -> Team:
    """Pools, engines and clients of policies that have passed :func:`.checks.check_policies`; ``agents`` is the team
    map, ``engine`` the configuration's.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong.
    """
    learning: dict[str, Policy] = {}
    of = {
        name: LoadedBackbone(RemoteEngine(name, spec.remote), ChatCodec(), sys.maxsize)
        for name, spec in policies.items()
        if spec.remote is not None
    }
    for specs in backbones(policies):
        common = strategy, engine, seed, ranks
        backbone = _full(specs[0], *common) if specs[0].full_weights else _shared(specs, *common)
        learning |= backbone.handles
        of |= {spec.name: backbone for spec in specs}
    training: dict[str, PolicyClient] = {}
    evaluation: dict[str, PolicyClient] = {}
    for agent, name in agents.items():
        spec, backbone = policies[name], of[name]
        for clients, sampling in ((training, spec.train), (evaluation, spec.eval)):
            clients[agent] = PolicyClient(
                name, backbone.engine, backbone.tokenizer, backbone.context, sampling, spec.chat
            )
    return Team(
        policies={name: learning[name] for name in policies if name in learning},
        engines={name: of[name].engine for name in policies},
        tokenizers={name: of[name].tokenizer for name in policies},
        training=training,
        evaluation=evaluation,
        schedules={name: spec.schedule for name, spec in policies.items() if spec.schedule is not None},
    )


def backbones(policies: Mapping[str, PolicySpec]) -> list[list[PolicySpec]]:
    """Policies that share a model: adapters and frozen ones with one base.  One whose whole model learns is alone;
    remote ones have none.
    """
    groups: dict[tuple[str, str], list[PolicySpec]] = {}
    for name, spec in policies.items():
        if spec.remote is not None:
            continue
        groups.setdefault((name, "") if spec.full_weights else ("", resolve(spec.base)), []).append(spec)
    return list(groups.values())


def _full(
    spec: PolicySpec, strategy: StrategySettings, engine: Mapping[str, Any], seed: int, ranks: Ranks
) -> LoadedBackbone:
    """A policy with a pool of its own."""
    assert spec.train_config is not None  # it learns
    model, tokenizer, context = _loaded([spec])
    module = PolicyModule(model, {spec.name: spec.train_config})
    recompute(model, strategy)
    fabric = strategy.fabric()
    launch(fabric)
    pool = Pool(module, fabric, pad_id=tokenizer.pad_token_id, seed=seed, ranks=ranks)
    speaking = build_engine(engine, {spec.name: copy.deepcopy(model)}, tokenizer)
    return LoadedBackbone(speaking, tokenizer, context, pool.policies)


def _shared(
    specs: Sequence[PolicySpec], strategy: StrategySettings, engine: Mapping[str, Any], seed: int, ranks: Ranks
) -> LoadedBackbone:
    """Adapters and frozen policies on one base, which learner and engine hold in memory once."""
    model, tokenizer, context = _loaded(specs)
    learning = {spec.name: spec.train_config for spec in specs if spec.train_config is not None}
    fabric = strategy.fabric()
    launch(fabric)
    if not learning:
        model = fabric.to_device(fabric.strategy.precision.convert_module(model))
        speaking = build_engine(engine, {spec.name: model for spec in specs}, tokenizer)
        return LoadedBackbone(speaking, tokenizer, context)
    settings = {spec.name: spec.lora for spec in specs if spec.lora is not None}
    seeds = {name: derive(seed, "adapter", name) for name in settings}
    module = AdapterModule(attach(model, specs[0].base, settings, seeds), learning)
    pool = Pool(module, fabric, pad_id=tokenizer.pad_token_id, seed=seed, ranks=ranks)
    base = base_of(module.model)
    recompute(model, strategy)
    models = {
        spec.name: base if spec.lora is None else Adapted(base, module.weights(spec.name), spec.lora.scale)
        for spec in specs
    }
    return LoadedBackbone(build_engine(engine, models, tokenizer), tokenizer, context, pool.policies)


def _loaded(specs: Sequence[PolicySpec]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, int]:
    """Model, tokenizer and context of the base that ``specs`` have in common."""
    model, tokenizer = load_base(f"policies.{specs[0].name}.base", specs[0].base)
    return model, tokenizer, model.config.max_position_embeddings


def recompute(model: PreTrainedModel, strategy: StrategySettings) -> None:
    """Let ``model`` compute its activations again in the backward pass, where ``strategy`` says so."""
    if strategy.gradient_checkpointing:
        named = "activation_checkpointing_enable"  # vLLM's transformers, 5.19, has the older one
        enable = getattr(model, named if hasattr(model, named) else "gradient_checkpointing_enable")
        enable({"use_reentrant": False})


def build_engine(
    node: Mapping[str, Any], models: Mapping[str, PreTrainedModel | Adapted], tokenizer: PreTrainedTokenizerBase
) -> Engine:
    """The engine that ``node`` names, for policies with one tokenizer.  It owns the models from here on."""
    engine: Engine = partially("engine", node)(models=models, tokenizer=tokenizer)
    return engine


def load_base(key: str, base: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal LM and its tokenizer.  Raises :class:`ConfigError` naming ``key`` where they cannot be loaded."""
    try:
        check_available(resolve(base))
        return load_model(base), load_tokenizer(base)
    except SafetensorError as error:
        raise ConfigError(f"{key}={base} cannot be loaded: its weights are damaged or cut off ({error})") from error
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
        if below is None:
            assert model is not None
            return model, tokenizer, model.config.max_position_embeddings
        adapted = load_adapted(Path(base), model or below)
    except SafetensorError as error:
        what = f"{key}={base} on {below} cannot be loaded"
        raise ConfigError(f"{what}: the weights of one are damaged or cut off ({error})") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key}={base} on {below} cannot be loaded: {error}") from error
    return adapted, tokenizer, adapted.model.config.max_position_embeddings
