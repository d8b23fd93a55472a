"""The policies of a run, before any model is loaded: how each is sampled, and how it learns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

from ..algorithms.objectives.base import Objective
from ..envs.base import ScriptedSkill
from ..errors import ConfigError, nearest
from ..evaluation.self_play import PastSettings
from ..experience import Sampling
from ..models.bases.base_models import place as base_place
from ..models.learning.settings import LoraSettings, Schedule, count_turns
from ..models.learning.train_config import PolicyTrainConfig
from ..models.pools.strategies import StrategySettings
from ..rollout.chat_template import PREFILL, raw_prompts
from ..rollout.engines.remote.settings import RemoteSettings
from .instantiation import call, check_known, construct, part, partially
from .sections import (
    AlgorithmSection,
    FrozenSection,
    FullSection,
    PolicySection,
    Prompts,
    RemoteSection,
    RunConfig,
    ScriptedSection,
    engine_identity,
    own_engine,
)


@dataclass(frozen=True)
class PolicySpec:
    """One policy: its base model, how it is sampled in training and evaluation, and how it learns.

    ``train_config`` and ``schedule`` are None where it does not learn (tuning=frozen, past, remote, scripted);
    ``lora`` is its adapter, None where the whole model learns; ``remote`` is the server that speaks for it, and
    ``base`` then the model's name there; ``skill`` is that of the demonstrator that speaks for it, and ``base`` then
    empty.  ``chat`` is what the base's chat template is given beside the messages.  ``place`` is the strategy of its
    pool, which then has processes of its own; None: the pool is where the run is.  ``engine`` is the configuration of
    the engine that generates for it, empty where no model does, and ``engine_key`` the key that it stands under.
    """

    name: str
    base: str
    train: Sampling
    eval: Sampling
    train_config: PolicyTrainConfig | None = None
    schedule: Schedule | None = None
    lora: LoraSettings | None = None
    remote: RemoteSettings | None = None
    skill: ScriptedSkill | None = None
    chat: Mapping[str, Any] = field(default_factory=dict)
    place: StrategySettings | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    engine_key: str = "engine"
    agents: Mapping[str, tuple[Sampling, Sampling]] = field(default_factory=dict)
    """``train`` and ``eval`` of the agents that are sampled otherwise."""
    past: PastSettings | None = None
    """Whose weights it has, where they are those of another policy."""
    prompts: Sequence[tuple[int, ...]] = ()
    """Some of the world's, token ids, on which its engine is tested."""

    def sampling_of(self, agent: str) -> tuple[Sampling, Sampling]:
        """How ``agent`` is sampled in training and in evaluation."""
        return self.agents.get(agent, (self.train, self.eval))

    @property
    def samplings(self) -> Iterator[tuple[str, Sampling]]:
        """(Key below the policy's, sampling) of each way in which it is sampled."""
        yield from (("sampling.train", self.train), ("sampling.eval", self.eval))
        for agent, (train, evaluation) in self.agents.items():
            yield from ((f"sampling.agents.{agent}.{way}", s) for way, s in (("train", train), ("eval", evaluation)))

    @property
    def has_model(self) -> bool:
        """Whether it speaks with a model that is loaded here."""
        return self.remote is None and self.skill is None

    @property
    def full_weights(self) -> bool:
        """Whether all weights of its model learn; else nothing does, or an adapter."""
        return self.train_config is not None and self.lora is None

    @property
    def owns_model(self) -> bool:
        """Whether all weights of its model change, so that it shares none."""
        return self.full_weights or (self.past is not None and self.lora is None)


def read_policies(run: RunConfig, strategy: StrategySettings) -> dict[str, PolicySpec]:
    """The policies of ``run``, whose strategy is ``strategy``.  Raises :class:`ConfigError` naming the key."""
    sections, objective = run.policies, part("algorithm.objective", run.algorithm.objective, "sized")
    check_names(sections)
    learning = {name: section for name, section in sections.items() if isinstance(section, FullSection)}
    turns = {name: turn for name, section in learning.items() if (turn := section.schedule.alternate) is not None}
    count = call("policies.*.schedule", count_turns, turns)
    specs = {name: _policy(name, section, run, objective) for name, section in sections.items()}
    for name, section in learning.items():
        place = (_place_on_ray if run.execution.on_ray else _place)(f"policies.{name}", section, strategy)
        schedule = Schedule(**vars(section.schedule), turns=count)
        specs[name] = replace(specs[name], place=place, schedule=schedule)
    return specs


def _place(key: str, section: FullSection, strategy: StrategySettings) -> StrategySettings | None:
    """The strategy of the pool of the policy under ``key``, where it has processes of its own."""
    if section.devices is None and section.strategy is None:
        return None
    if strategy.strategy != "auto":
        raise ConfigError(
            f"{key}.devices and {key}.strategy give a pool processes of its own, and then the run itself has one: give "
            "strategy=single_device"
        )
    place: StrategySettings = call(key, strategy.placed, section.strategy, section.devices)
    if place.num_nodes != 1:
        raise ConfigError(f"{key}: a pool with processes of its own is on one machine; give strategy.num_nodes=1")
    return place


def _place_on_ray(key: str, section: FullSection, strategy: StrategySettings) -> StrategySettings:
    """The strategy of the pool of the policy under ``key`` over as many nodes of Ray as it has devices."""
    place: StrategySettings = call(key, strategy.placed, section.strategy, section.devices)
    if place.num_nodes != 1:
        raise ConfigError(f"{key}: with execution=ray Ray chooses the nodes of a pool; give strategy.num_nodes=1")
    if not isinstance(place.devices, int):
        raise ConfigError(
            f"{key}: with execution=ray Ray chooses the devices of a pool; give their number (strategy.devices or "
            f"{key}.devices), got {place.devices!r}"
        )
    # To Lightning each process is a node with one device, wherever Ray has put it.
    return replace(place, devices=1, num_nodes=place.devices)


def cautions(policies: Mapping[str, PolicySpec], iterations: int) -> Iterator[str]:
    """What is legal in a run of so many ``iterations``, and hardly meant."""
    for name, spec in policies.items():
        for key, each in spec.samplings:
            if spec.train_config is not None and key.endswith("train") and (each.top_p < 1 or each.top_k > 0):
                yield (
                    f"policies.{name}.{key} truncates (top_p={each.top_p}, top_k={each.top_k}): the learner's "
                    "log-probabilities are those of the whole distribution, so the importance ratio is biased"
                )
        if spec.schedule is not None and iterations and not spec.schedule.ever(iterations):
            yield f"policies.{name}.schedule: the policy learns in none of the run's {iterations} iterations"


def check_past(policies: Mapping[str, PolicySpec]) -> None:
    """Raise :class:`ConfigError` where a policy is to have the weights of one that has none, or other ones."""
    for name, spec in policies.items():
        if spec.past is None:
            continue
        key, learning = f"policies.{name}.past.of={spec.past.of}", [n for n, s in policies.items() if s.train_config]
        if spec.past.of not in learning:
            raise ConfigError(f"{key} is no policy that learns{nearest(spec.past.of, learning)}")
        other = policies[spec.past.of]
        for what, own, its in (("base", spec.base, other.base), ("lora", spec.lora, other.lora)):
            if own != its:
                raise ConfigError(
                    f"{key}: policies.{name}.{what} must be that of policy '{spec.past.of}', {its}, got {own}"
                )


def check_names(policies: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for names that are no folders of their own: each policy's weights have one."""
    seen: dict[str, str] = {}
    for name in policies:
        if not re.fullmatch(r"\w[\w-]*", name):
            raise ConfigError(f"policies.{name}: a policy's name is letters, digits, _ and -, as its folder's")
        if other := seen.get(name.casefold()):
            raise ConfigError(f"policies.{name}: checkpoints would write '{other}' and '{name}' to one path")
        seen[name.casefold()] = name


def check_agents(policies: Mapping[str, PolicySpec], team: Mapping[str, str]) -> None:
    """Raise :class:`ConfigError` for the sampling of an agent that another policy speaks for."""
    for name, spec in policies.items():
        own = [agent for agent, policy in team.items() if policy == name]
        for agent in spec.agents:
            if agent not in own:
                raise ConfigError(
                    f"policies.{name}.sampling.agents.{agent}: the policy does not speak for agent '{agent}'"
                    f"{nearest(agent, own)}"
                )


def agent_sampling(key: str, common: Mapping[str, Any], own: Mapping[str, Any]) -> Sampling:
    """``common``, the sampling of a policy, with the keys that an agent has otherwise, in the section ``key``."""
    check_known(key, Sampling, own)
    return construct(key, Sampling, {**common, **own})


def _policy(name: str, section: PolicySection, run: RunConfig, objective: Objective) -> PolicySpec:
    key, sampling = f"policies.{name}", section.sampling
    agents = {
        agent: (
            agent_sampling(f"{key}.sampling.agents.{agent}.train", vars(sampling.train), own.train),
            agent_sampling(f"{key}.sampling.agents.{agent}.eval", vars(sampling.eval), own.eval),
        )
        for agent, own in sampling.agents.items()
    }
    spec = PolicySpec(name, getattr(section, "base", ""), sampling.train, sampling.eval, agents=agents)
    if isinstance(section, RemoteSection):
        _check_server(key, spec.samplings)
        return replace(spec, base=section.remote.model, remote=section.remote)
    if isinstance(section, ScriptedSection):
        return replace(spec, skill=read_skill(key, section.skill))
    assert isinstance(section, FrozenSection)  # of the other tunings
    spec = replace(
        spec,
        chat=read_chat(key, {"chat": section.chat, "prompts": section.prompts}),
        engine=own_engine(run.engine, section.engine),
        engine_key=f"{key}.engine" if section.engine else "engine",
        lora=getattr(section, "lora", None),
        past=getattr(section, "past", None),
    )
    if not isinstance(section, FullSection):
        return spec
    return replace(spec, train_config=_train_config(spec, section, run.algorithm, objective))


def _train_config(
    spec: PolicySpec, section: FullSection, algorithm: AlgorithmSection, objective: Objective
) -> PolicyTrainConfig:
    """How the policy of ``section`` learns: as the run, and otherwise where its section says so."""
    key, own = f"policies.{spec.name}", section.algorithm
    for way, each in spec.samplings:
        if way.endswith("train") and each.temperature == 0:
            raise ConfigError(
                f"{key}.{way}.temperature=0 is greedy: K equal candidates teach nothing; give a temperature above 0"
            )
    by_agent = {agent: train for agent, (train, _) in spec.agents.items()}
    if own.objective:
        node = own.objective if "_target_" in own.objective else {**algorithm.objective, **own.objective}
        objective = part(f"{key}.algorithm.objective", node, "sized")
    check_known(f"{key}.algorithm.update", type(algorithm.update), own.update)
    return PolicyTrainConfig(
        objective=objective.sized(max(each.max_tokens for each in (spec.train, *by_agent.values()))),
        optimizer=partially(f"{key}.optimizer", section.optimizer),
        scheduler=partially(f"{key}.scheduler", section.scheduler),
        temperature=spec.train.temperature,
        temperatures={agent: train.temperature for agent, train in by_agent.items()},
        update=call(f"{key}.algorithm.update", replace, algorithm.update, **own.update),
    )


def read_chat(key: str, node: Mapping[str, Any]) -> dict[str, Any]:
    """What the chat template of the policy under ``key`` is given.  Raises :class:`ConfigError` naming the key."""
    chat = node.get("chat")
    if chat is not None and not isinstance(chat, Mapping):
        raise ConfigError(f"{key}.chat must hold keys, got {chat!r}")
    prompts = node.get("prompts") or "chat"
    if prompts not in get_args(Prompts):
        raise ConfigError(f"{key}.prompts={prompts} is unknown{nearest(str(prompts), get_args(Prompts))}")
    chat = dict(chat or {})
    if not isinstance(begin := chat.get(PREFILL, ""), str):
        raise ConfigError(f"{key}.chat.{PREFILL} must be a text, got {begin!r}")
    if prompts == "raw" and chat.keys() - {PREFILL}:
        raise ConfigError(f"{key}.chat={chat}: no chat template reads it with {key}.prompts=raw; give {{}}")
    return {**chat, **raw_prompts()} if prompts == "raw" else chat


def read_skill(key: str, skill: str) -> ScriptedSkill:
    """The skill of the scripted policy under ``key``.  Raises :class:`ConfigError` naming the key."""
    if skill not in (known := get_args(ScriptedSkill)):
        raise ConfigError(f"{key}.skill={skill} is unknown{nearest(str(skill), known)}")
    return cast(ScriptedSkill, skill)


def read_remote(key: str, node: Mapping[str, Any]) -> RemoteSettings:
    """The server of the remote policy under ``key``.  Raises :class:`ConfigError` naming the key."""
    ways = {f"sampling.{way}": node["sampling"][way] for way in ("train", "eval")}
    _check_server(key, ((way, construct(f"{key}.{way}", Sampling, each)) for way, each in ways.items()))
    return construct(f"{key}.remote", RemoteSettings, node["remote"])


def _check_server(key: str, samplings: Iterable[tuple[str, Sampling]]) -> None:
    for way, each in samplings:
        if each.top_k:
            raise ConfigError(
                f"{key}.{way}.top_k={each.top_k}: OpenAI's interface has no top_k; give 0, and what a server "
                f"takes beyond it in {key}.remote.extra"
            )


def check_context_fits(key: str, sampling: Sampling, base: str, context: int) -> None:
    """Raise :class:`ConfigError` where answers may fill the whole ``context``, in tokens."""
    if sampling.max_tokens >= context:
        raise ConfigError(
            f"{key}.max_tokens={sampling.max_tokens} leaves no room for a prompt: the context of {base} is "
            f"{context} tokens"
        )


def backbones(policies: Mapping[str, PolicySpec]) -> list[list[PolicySpec]]:
    """Policies that share a model: adapters and frozen ones with one base in one place and one engine.  One whose whole
    model changes is alone; remote and scripted ones have none.
    """
    groups: dict[tuple[str, str, StrategySettings | None, str], list[PolicySpec]] = {}
    for name, spec in policies.items():
        if not spec.has_model:
            continue
        own, base = (name, "") if spec.owns_model else ("", base_place(spec.base))
        groups.setdefault((own, base, spec.place, engine_identity(spec.engine)), []).append(spec)
    return list(groups.values())
