"""The sections of a run's configuration as dataclasses, whose fields are the known keys; and the engine of each policy,
the run's or its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import yaml

from ..cluster.execution import Execution
from ..diagnostics.settings import DiagnosticsSettings
from ..envs.base import ScriptedSkill
from ..errors import ConfigError, nearest
from ..evaluation.self_play import PastSettings
from ..experience import Sampling
from ..models.learning.settings import Alternation, CriticSettings, LoraSettings, UpdateSettings
from ..rollout.engines.remote.settings import RemoteSettings
from ..runs.budget import LoopSettings
from ..runs.faults import FaultSettings
from ..runs.fingerprint import flat
from .instantiation import check_finite, construct, construct_plainly, part, unknown_key


def own_engine(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``common``, the run's engine, with the keys of ``own`` in place of its keys; ``own`` alone where that names a
    class, as ``policy/on_torch`` and ``policy/on_vllm`` do.
    """
    return dict(own) if "_target_" in own else {**common, **own}


def check_keys(key: str, own: object) -> None:
    """Raise :class:`ConfigError` for the engine of the policy under ``key`` where it is the name of one."""
    if isinstance(own, str):
        raise ConfigError(
            f"{key}.engine={own} is no set of keys; for another engine than the run's, give "
            f"policy@{key}=[NAME,on_torch] or policy@{key}=[NAME,on_vllm]; [NAME,remote] where a server speaks for it, "
            "which takes no weights"
        )


def engine_name(engine: Mapping[str, Any]) -> str:
    """The name of its class."""
    return str(engine.get("_target_", "?")).rpartition(".")[2]


def count_of(engine: Mapping[str, Any], key: str) -> int:
    """The whole number ``engine[key]``; 1 where there is no such key, or another value, which the class refuses."""
    value = engine.get(key, 1)
    return value if isinstance(value, int) and value > 0 else 1


def engine_processes(engine: Mapping[str, Any]) -> int:
    """Those that hold a model, or a shard of one."""
    return count_of(engine, "tensor_parallel") * count_of(engine, "data_parallel")


def engine_identity(engine: Mapping[str, Any]) -> str:
    """Equal for engines with equal keys: policies with one model and one engine share both."""
    return json.dumps(engine, sort_keys=True, default=str)


REFERENCE = re.compile(r"(?<!\\)\$\{(scale\.[\w.]+)\}")
"""An interpolation, in a yaml, of a key of ``scale``."""


def check_scale(scale: Mapping[str, Any], unresolved: str) -> None:
    """Raise :class:`ConfigError` for a key of ``scale`` that no scale of the package has and that no interpolation of
    ``unresolved``, the yaml of the whole configuration, refers to.
    """
    yamls = Path(str(files("troupe.configs")), "scale").rglob("*.yaml")
    contents = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in yamls]
    known = {key for content in contents for key, _ in flat(content.get("scale", {}), "scale.")}
    known |= set(REFERENCE.findall(unresolved))
    for leaf, _ in flat(scale, "scale."):
        if known.isdisjoint(accumulate(leaf.split(".")[1:], "{}.{}".format, initial="scale")):
            raise ConfigError(f"{leaf} is an unknown key: no scale of the package has it, and nothing refers to it")


if TYPE_CHECKING:
    from ..rollout.samplers.sampler import Sampler


@dataclass(frozen=True, kw_only=True)
class CriticSection(CriticSettings):
    """``base`` (null: that of the policies), ``optimizer``, and the keys of a critic's update."""

    base: str | None
    optimizer: Mapping[str, Any]


@dataclass(frozen=True)
class RewardSection:
    """Where a team's reward comes from, see :class:`..rollout.samplers.tree.TreeSampler`; the sampler checks it."""

    team: str


@dataclass(frozen=True)
class AlgorithmSection:
    sampler: Mapping[str, Any]
    credit: Mapping[str, Any]
    objective: Mapping[str, Any]
    update: UpdateSettings
    critic: CriticSection | None = None
    reward: RewardSection | None = None

    def build_sampler(self) -> Sampler:
        """``sampler``, with what ``reward`` says.  Raises :class:`ConfigError` naming the key."""
        from ..rollout.samplers.tree import TreeSampler  # and torch, without which a command line is checked

        sampler: Sampler = part("algorithm.sampler", self.sampler, "collect")
        if "team" in self.sampler:
            raise ConfigError("algorithm.sampler.team is no key; give algorithm.reward.team")
        if self.reward is not None:
            if not isinstance(sampler, TreeSampler):
                raise ConfigError(
                    f"algorithm.reward.team={self.reward.team} has no effect with algorithm.sampler "
                    f"({type(sampler).__name__}), whose episodes are judged by what the team earned; give "
                    "~algorithm.reward"
                )
            sampler = part("algorithm.sampler", {**self.sampler, "team": self.reward.team}, "collect")
        return sampler


@dataclass(frozen=True)
class CheckpointSection:
    every: int
    keep: int


@dataclass(frozen=True, kw_only=True)
class LoopSection(LoopSettings):
    """The keys of ``loop``: those of the loop itself, and ``checkpoint``."""

    checkpoint: CheckpointSection


@dataclass(frozen=True)
class AgentSampling:
    """The keys of ``train`` and ``eval`` that differ for one agent of a policy."""

    train: Mapping[str, Any] = field(default_factory=dict)
    eval: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SamplingSection:
    train: Sampling
    eval: Sampling
    agents: Mapping[str, AgentSampling] = field(default_factory=dict)


@dataclass(frozen=True)
class ScheduleSection:
    freeze_until: int = 0
    alternate: Alternation | None = None


@dataclass(frozen=True)
class ChangesSection:
    """Keys that differ from the run's algorithm for one policy."""

    objective: Mapping[str, Any] = field(default_factory=dict)
    update: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PolicySection:
    """The keys of all policies; the subclass for each ``tuning`` adds its own."""

    learns: ClassVar[bool] = False

    sampling: SamplingSection
    tuning: str = "full"

    @classmethod
    def read(cls, key: str, section: Mapping[str, Any]) -> PolicySection:
        """The section of one policy.  Keys of other tunings are allowed if they are empty, such as null.

        Raises :class:`ConfigError` naming the key.
        """
        tuning = section.get("tuning") or "full"
        if not isinstance(tuning, str) or tuning not in TUNINGS:
            raise ConfigError(f"{key}.tuning={tuning} is unknown{nearest(str(tuning), list(TUNINGS))}")
        kind = TUNINGS[tuning]
        known = {name for each in TUNINGS.values() for name in _names(each)}
        for name, value in section.items():
            if name not in known:
                raise unknown_key(f"{key}.{name}", _names(kind))
            if name not in _names(kind) and not _empty(value):
                raise ConfigError(f"{key}.{name} does not apply with {key}.tuning={tuning}; give null")
        own = {name: value for name, value in section.items() if name in _names(kind) and value is not None}
        check_keys(key, own.get("engine"))
        return construct_plainly(key, kind, own)


@dataclass(frozen=True, kw_only=True)
class RemoteSection(PolicySection):
    """``tuning=remote``: a server generates its messages."""

    remote: RemoteSettings


@dataclass(frozen=True, kw_only=True)
class ScriptedSection(PolicySection):
    """``tuning=scripted``: the world's demonstrator generates its messages, or nobody (``skill=silent``)."""

    skill: ScriptedSkill = "expert"


Prompts = Literal["chat", "raw"]


@dataclass(frozen=True, kw_only=True)
class FrozenSection(PolicySection):
    """``tuning=frozen``: it is not trained.  ``prompts``: by the chat template, with ``chat`` as its further arguments,
    or raw, for base models without one.  ``engine`` are keys that differ from the run's engine, or a whole engine.
    """

    base: str
    chat: Mapping[str, Any] = field(default_factory=dict)
    prompts: Prompts = "chat"
    engine: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PastSection(FrozenSection):
    """``tuning=past``: it is not trained, and speaks with weights that another policy has now, or had before; ``lora``:
    where that one's are an adapter."""

    past: PastSettings
    lora: LoraSettings | None = None


@dataclass(frozen=True, kw_only=True)
class FullSection(FrozenSection):
    """``tuning=full``: all its weights are trained.  ``devices`` and ``strategy`` (a name) give its pool processes of
    its own.
    """

    learns = True

    devices: int | Sequence[int] | None = None
    strategy: str | None = None

    optimizer: Mapping[str, Any]
    scheduler: Mapping[str, Any]
    schedule: ScheduleSection = field(default_factory=ScheduleSection)
    algorithm: ChangesSection = field(default_factory=ChangesSection)


@dataclass(frozen=True, kw_only=True)
class LoraSection(FullSection):
    """``tuning=lora``: an adapter is trained."""

    lora: LoraSettings


TUNINGS: dict[str, type[PolicySection]] = {
    "full": FullSection,
    "lora": LoraSection,
    "frozen": FrozenSection,
    "past": PastSection,
    "remote": RemoteSection,
    "scripted": ScriptedSection,
}
"""The values of ``policies.NAME.tuning``."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole configuration.  A mapping contains the arguments of the class that its ``_target_`` names."""

    env: Mapping[str, Any]
    algorithm: AlgorithmSection
    policies: Mapping[str, PolicySection]
    team: Mapping[str, str]
    engine: Mapping[str, Any]
    strategy: Mapping[str, Any]
    scale: Mapping[str, Any]
    loop: LoopSection
    logger: Mapping[str, Mapping[str, Any]]
    name: str
    seed: int
    run_dir: str
    resume: str | None
    dry_run: bool
    threads: int | None
    allow_unsafe_execution: bool
    trust: Sequence[str] = ()
    callbacks: Mapping[str, Mapping[str, Any]] | None = None
    verbose: bool = False
    live: bool = False
    detect_anomaly: bool = False
    faults: FaultSettings = field(default_factory=FaultSettings)
    diagnostics: DiagnosticsSettings = field(default_factory=DiagnosticsSettings)
    execution: Execution = field(default_factory=Execution)

    def __post_init__(self) -> None:
        check_threads(self.threads)
        check_seed(self.seed)


def check_threads(count: int | None) -> None:
    """Each thread takes memory for its stack, so that many thousands end in an error that names no key."""
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 1024):
        raise ConfigError(f"threads must be a whole number from 1 to 1024, or null, got {count!r}")


def check_seed(seed: int) -> None:
    """numpy's range; a run's own seeds are derived from it."""
    if not isinstance(seed, int) or not 0 <= seed < 1 << 32:
        raise ConfigError(f"seed must be a whole number from 0 to 2^32 - 1, got {seed!r}")


def read_config(config: Mapping[str, Any], unresolved: str | None) -> RunConfig:
    """The sections of ``config``.  ``unresolved`` is its yaml with interpolations; None for a continued run, whose keys
    of ``scale`` were checked when it began.

    Raises :class:`ConfigError` naming a key that is unknown, missing or wrong.
    """
    check_finite(config)
    run = construct("", RunConfig, config)
    if unresolved is not None:
        check_scale(run.scale, unresolved)
    return run


def _names(kind: type[PolicySection]) -> set[str]:
    return {each.name for each in fields(kind)}


def _empty(value: Any) -> bool:
    """Whether ``value`` is null, 0 or empty, or contains only such values."""
    return all(map(_empty, value.values())) if isinstance(value, Mapping) else not value
