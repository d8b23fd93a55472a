"""``policies``: what stands in the configuration about each policy, checked before any model is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..algorithms.objectives.base import Objective
from ..errors import ConfigError, nearest
from ..experience import Sampling
from ..models.adapters import LoraSettings
from ..models.schedule import Alternation, Schedule, count_turns
from ..models.train_config import PolicyTrainConfig, UpdateSettings
from ..rollout.engines.remote.settings import RemoteSettings
from .configuration import call, instantiated, partially

SCHEDULE = ("freeze_until", "alternate")


@dataclass(frozen=True)
class PolicySpec:
    """One policy: its base model, how it is sampled in training and evaluation, and how it learns.

    ``train_config`` and ``schedule`` are None where it does not learn (tuning=frozen, remote); ``lora`` is its adapter,
    None where the whole model learns; ``remote`` is the server that speaks for it, and ``base`` then the model's name
    there.  ``chat`` is what the base's chat template is given beside the messages.
    """

    name: str
    base: str
    train: Sampling
    eval: Sampling
    train_config: PolicyTrainConfig | None
    schedule: Schedule | None
    lora: LoraSettings | None
    remote: RemoteSettings | None = None
    chat: Mapping[str, Any] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all weights of its model learn; else nothing does, or an adapter."""
        return self.train_config is not None and self.lora is None


def read_policies(config: Mapping[str, Any], objective: Objective) -> dict[str, PolicySpec]:
    """The policies of a configuration that has passed ``check_keys``; ``objective`` is the run's.

    Raises :class:`ConfigError` naming the key.
    """
    nodes: Mapping[str, Any] = config["policies"]
    check_names(nodes)
    turns = {name: turn for name, node in nodes.items() if (turn := _turn(name, node)) is not None}
    count = call("policies.*.schedule", count_turns, turns)
    found = {}
    for name, node in nodes.items():
        spec = _policy(name, node, config["algorithm"], objective)
        if spec.schedule is not None:
            spec = replace(spec, schedule=replace(spec.schedule, turns=count))
        found[name] = spec
    return found


def cautions(policies: Mapping[str, PolicySpec], iterations: int) -> Iterator[str]:
    """What is legal in a run of so many ``iterations``, and hardly meant."""
    for name, spec in policies.items():
        if spec.train_config is not None and (spec.train.top_p < 1 or spec.train.top_k > 0):
            yield (
                f"policies.{name}.sampling.train truncates (top_p={spec.train.top_p}, top_k={spec.train.top_k}): the "
                "learner's log-probabilities are those of the whole distribution, so the importance ratio is biased"
            )
        if spec.schedule is not None and iterations and not spec.schedule.ever(iterations):
            yield f"policies.{name}.schedule: the policy learns in none of the run's {iterations} iterations"


def check_names(policies: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for names that are no folders of their own: each policy's weights have one."""
    seen: dict[str, str] = {}
    for name in policies:
        if not re.fullmatch(r"\w[\w-]*", name):
            raise ConfigError(f"policies.{name}: a policy's name is letters, digits, _ and -, as its folder's")
        if other := seen.get(name.casefold()):
            raise ConfigError(f"policies.{name}: checkpoints would write '{other}' and '{name}' to one path")
        seen[name.casefold()] = name


def _policy(name: str, node: Mapping[str, Any], algorithm: Mapping[str, Any], objective: Objective) -> PolicySpec:
    key, tuning = f"policies.{name}", node.get("tuning") or "full"
    train, evaluation = (read_sampling(f"{key}.sampling.{way}", node["sampling"][way]) for way in ("train", "eval"))
    if tuning == "frozen":
        return PolicySpec(name, node["base"], train, evaluation, None, None, None, chat=read_chat(key, node))
    if tuning == "remote":
        server = read_remote(key, node)
        return PolicySpec(name, server.model, train, evaluation, None, None, None, server)
    if train.temperature == 0:
        raise ConfigError(
            f"{key}.sampling.train.temperature=0 is greedy: K equal candidates teach nothing; give a temperature "
            "above 0"
        )
    own = node.get("algorithm") or {}
    if mine := own.get("objective"):
        merged = _merged(f"{key}.algorithm.objective", algorithm["objective"], mine)
        objective = instantiated(f"{key}.algorithm.objective", merged)
    where = f"{key}.algorithm.update" if own.get("update") else "algorithm.update"
    train_config = PolicyTrainConfig(
        objective=objective.sized(train.max_tokens),
        optimizer=partially(f"{key}.optimizer", node["optimizer"]),
        scheduler=partially(f"{key}.scheduler", node["scheduler"]),
        temperature=train.temperature,
        update=call(where, UpdateSettings, **_merged(where, algorithm["update"], own.get("update") or {})),
    )
    given = node.get("schedule") or {}
    for word in given:
        if word not in SCHEDULE:
            raise ConfigError(f"{key}.schedule.{word} is an unknown key{nearest(word, SCHEDULE)}")
    schedule = call(f"{key}.schedule", Schedule, **{**given, "alternate": _turn(name, node)})
    lora = call(f"{key}.lora", LoraSettings, **node["lora"]) if tuning == "lora" else None
    return PolicySpec(name, node["base"], train, evaluation, train_config, schedule, lora, chat=read_chat(key, node))


def _turn(name: str, node: Mapping[str, Any]) -> Alternation | None:
    given = (node.get("schedule") or {}).get("alternate")
    return None if given is None else call(f"policies.{name}.schedule.alternate", Alternation, **given)


def _merged(key: str, run: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``own`` over what the run has; with a ``_target_``, ``own`` alone.  Raises for keys that the run has not."""
    if "_target_" in own:
        return dict(own)
    for name in own:
        if name not in run:
            raise ConfigError(f"{key}.{name} is an unknown key{nearest(name, list(run))}")
    return {**run, **own}


def read_sampling(key: str, values: Mapping[str, Any]) -> Sampling:
    """Raises :class:`ConfigError` naming ``key``."""
    return call(key, Sampling, **{**values, "stop": tuple(values.get("stop", ()))})


def read_chat(key: str, node: Mapping[str, Any]) -> dict[str, Any]:
    """What the chat template of the policy under ``key`` is given.  Raises :class:`ConfigError` naming the key."""
    chat = node.get("chat")
    if chat is not None and not isinstance(chat, Mapping):
        raise ConfigError(f"{key}.chat must hold keys, got {chat!r}")
    return dict(chat or {})


def read_remote(key: str, node: Mapping[str, Any]) -> RemoteSettings:
    """The server of the remote policy under ``key``.  Raises :class:`ConfigError` naming the key."""
    for way, sampling in node["sampling"].items():
        if sampling.get("top_k"):
            raise ConfigError(
                f"{key}.sampling.{way}.top_k={sampling['top_k']}: OpenAI's interface has no top_k; give 0, and what a "
                f"server takes beyond it in {key}.remote.extra"
            )
    server: RemoteSettings = call(f"{key}.remote", RemoteSettings, **node["remote"])
    return server


def check_room(key: str, sampling: Sampling, base: str, context: int) -> None:
    """Raise :class:`ConfigError` where answers may fill the whole ``context``, in tokens."""
    if sampling.max_tokens >= context:
        raise ConfigError(
            f"{key}.max_tokens={sampling.max_tokens} leaves no room for a prompt: the context of {base} is "
            f"{context} tokens"
        )
