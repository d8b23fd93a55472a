"""Actors for an evaluation's policies: engines without pools or optimizers."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..evaluation.assignment import AgentSource, LocalPolicy, RemotePolicy, ScriptedPolicy
from ..evaluation.conditions import Condition, sampling_at
from ..evaluation.episodes import Actor, PolicyActor
from ..evaluation.request import Temperature
from ..models.bases.base_models import SHIPPED, resolve
from ..rollout.chat_codec import ChatCodec
from ..rollout.chat_template import check_chat, try_prompts
from ..rollout.engines.base import Engine, drain_counters
from ..rollout.engines.lora import Adapted
from ..rollout.engines.remote.engine import RemoteEngine
from ..rollout.policy_client import PolicyClient
from ..rollout.scripted import NoEngine, ScriptedClient
from .policies import check_context_fits
from .sections import engine_identity, own_engine
from .team import build_engine, load_speaker


class ActorFactory:
    """Makes actors and the engines behind them: each set of weights is loaded once; adapters of one model, and the
    model by itself, share an engine, as they do in training, where they are known beforehand (:meth:`prepare`).
    """

    def __init__(self, engine: Mapping[str, Any]) -> None:
        self._engine = dict(engine)
        self._clients: dict[str, PolicyClient] = {}  # by weights and engine, or by server

    def actors(self, conditions: Sequence[Condition]) -> list[dict[str, Actor]]:
        """By condition, an actor for each agent.  Raises :class:`ConfigError` naming the key that asked for weights
        that cannot be loaded.
        """
        self.prepare(source for condition in conditions for source in condition.assignment.values())
        return [self.team(condition.assignment, condition.temperature) for condition in conditions]

    def team(self, sources: Mapping[str, AgentSource], temperature: Temperature) -> dict[str, Actor]:
        """By agent, an actor for its source at ``temperature``.  Raises as :meth:`actors` does."""
        self.prepare(sources.values())
        return {agent: self.actor(source, temperature) for agent, source in sources.items()}

    def prepare(self, sources: Iterable[AgentSource]) -> None:
        """Load the weights of ``sources``.  Raises as :meth:`actors` does."""
        groups: dict[str, dict[str, LocalPolicy]] = {}
        for source in sources:
            if isinstance(source, LocalPolicy) and self._speaker(source) not in self._clients:
                groups.setdefault(self._model(source), {}).setdefault(source.weights, source)
        for group in groups.values():
            self._load(list(group.values()))

    def _engine_of(self, policy: LocalPolicy) -> dict[str, Any]:
        engine = own_engine(self._engine, policy.engine)
        return engine | ({"iterations": 0} if "iterations" in engine else {})  # too short to compile for

    def _model(self, policy: LocalPolicy) -> str:
        """Equal for policies that share an engine: it, and the model that it holds."""
        engine = self._engine_of(policy)
        # An engine that merges adapters holds the weights of one policy.
        model = policy.weights if engine.get("lora") == "merged" else resolve(policy.base_model or policy.weights)
        return f"{model} {engine_identity(engine)}"

    def _speaker(self, policy: LocalPolicy) -> str:
        """Equal for policies with the same weights in the same engine."""
        return f"{policy.weights} {engine_identity(self._engine_of(policy))}"

    def _load(self, group: Sequence[LocalPolicy]) -> None:
        """One engine for ``group``, whose policies have one model."""
        models: dict[str, PreTrainedModel | Adapted] = {}
        model: PreTrainedModel | None = None
        loaded: list[tuple[str, PreTrainedTokenizerBase, int]] = []
        for policy in group:
            weights, tokenizer, context = load_speaker(policy.key, policy.weights, policy.base_model, model)
            model = weights.model if isinstance(weights, Adapted) else weights
            name = _unused(policy.policy, models)  # policies of different runs may have one name
            models[name] = weights
            loaded.append((name, tokenizer, context))
        engine = build_engine(self._engine_of(group[0]), models, loaded[0][1])
        for policy, (name, tokenizer, context) in zip(group, loaded, strict=True):
            self._clients[self._speaker(policy)] = PolicyClient(name, engine, tokenizer, context, policy.sampling)

    def actor(self, source: AgentSource, temperature: Temperature) -> Actor:
        """``source`` at ``temperature``.  Raises as :meth:`actors` does."""
        if isinstance(source, RemotePolicy):
            return self._remote(source, temperature)
        if isinstance(source, ScriptedPolicy):
            how = NoEngine(), ChatCodec(), sys.maxsize, source.sampling
            return PolicyActor(ScriptedClient(source.policy, *how, skill=source.skill))
        if not isinstance(source, LocalPolicy):
            return source
        self.prepare([source])
        sampling = sampling_at(temperature, source.sampling)
        client = replace(self._clients[self._speaker(source)], sampling=sampling, chat=source.chat)
        key = f"policies.{source.configured_as}"
        if not isinstance(client.tokenizer, ChatCodec):
            check_chat(key, client.tokenizer, source.chat)
            if source.weights not in SHIPPED:
                try_prompts(key, client.tokenizer, source.chat)
        check_context_fits(f"{key}.sampling.eval", client.sampling, source.weights, client.context)
        return PolicyActor(client)

    def _remote(self, policy: RemotePolicy, temperature: Temperature) -> Actor:
        key = f"{policy.policy} {policy.server}"
        if key not in self._clients:
            engine = RemoteEngine(policy.policy, policy.server)
            self._clients[key] = PolicyClient(policy.policy, engine, ChatCodec(), sys.maxsize, policy.sampling)
        return PolicyActor(replace(self._clients[key], sampling=sampling_at(temperature, policy.sampling)))

    def drain(self) -> dict[str, float]:
        """What engines have counted since the last call, by metric."""
        return drain_counters(self._engines())

    async def close(self) -> None:
        """Close every engine."""
        for engine in self._engines():
            await engine.close()

    def _engines(self) -> list[Engine]:
        """Each once."""
        return list(dict.fromkeys(client.engine for client in self._clients.values()))


def _unused(name: str, taken: Container[str]) -> str:
    """``name``, numbered where it is taken."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(candidate for candidate in names if candidate not in taken)
