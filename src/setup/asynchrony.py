"""What ``loop.staleness`` above 0 needs of the other parts of a run; training and a dry run ask the same."""

from __future__ import annotations

from collections.abc import Mapping

from ..cluster.settings import Execution
from ..errors import ConfigError
from ..models.strategies import StrategySettings
from ..rollout.samplers.base import Sampler
from ..runs.budget import LoopSettings
from .critics import CriticSpec
from .engines import engine_name
from .policies import PolicySpec


def check_asynchrony(
    settings: LoopSettings,
    sampler: Sampler,
    strategy: StrategySettings,
    policies: Mapping[str, PolicySpec],
    critics: Mapping[str, CriticSpec],
    execution: Execution,
) -> None:
    """Refuse what cannot go on while policies learn.  Raises :class:`ConfigError` naming the key and the remedy."""
    _check_bounds(settings, policies, execution)
    for spec in policies.values():
        _check_in_flight(settings, spec)
    if not settings.staleness:
        return
    label = f"loop.staleness={settings.staleness}"
    if (
        strategy.strategy != "auto" and not execution.on_ray
    ):  # where a strategy is that of pools, and the run one process
        raise ConfigError(
            f"{label} needs a run of one process: several would have to agree on which tasks have ended, in the middle "
            "of an update. Give strategy=single_device, and pools processes of their own (policies.NAME.devices, "
            "policies.NAME.strategy)"
        )
    if sampler.resample:
        raise ConfigError(
            f"{label}: algorithm.sampler.resample={sampler.resample} plays further tasks once it has seen the groups "
            "of an iteration, so that nothing of it can be played ahead; give resample=0, or loop.staleness=0"
        )
    for spec in policies.values():
        _check_engine(label, spec)
        _check_objective(label, spec)
    _check_precision(label, strategy, policies, critics)
    if settings.lockstep:
        raise ConfigError(
            f"{label} with loop.lockstep=true: in common rounds nobody decodes while a world waits, and how much of an "
            "episode an update sees depends on time, so that a seed cannot fix the run; give loop.lockstep=false"
        )


def bounds(settings: LoopSettings, policies: Mapping[str, PolicySpec]) -> dict[str, int]:
    """The policies whose bound is smaller than the run's."""
    own = {name: spec.staleness for name, spec in policies.items() if spec.staleness is not None}
    return {name: bound for name, bound in own.items() if bound < settings.staleness}


def _check_bounds(settings: LoopSettings, policies: Mapping[str, PolicySpec], execution: Execution) -> None:
    for name, spec in policies.items():
        if spec.staleness is not None and spec.staleness > settings.staleness:
            raise ConfigError(
                f"policies.{name}.staleness={spec.staleness} is above loop.staleness={settings.staleness}, which says "
                "how far ahead tasks are played; give at most that"
            )
    if execution.worlds and (own := bounds(settings, policies)):
        name, bound = next(iter(own.items()))
        raise ConfigError(
            f"policies.{name}.staleness={bound}: a policy with a smaller bound than loop.staleness waits for its turn "
            "in the run's process, and actors of worlds ask engines themselves; give execution.worlds=0"
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


def _check_engine(label: str, spec: PolicySpec) -> None:
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


def _check_objective(label: str, spec: PolicySpec) -> None:
    if spec.train_config is not None and not spec.train_config.objective.importance_cap:
        raise ConfigError(
            f"{label}: policy '{spec.name}' would learn from messages of its older versions as if they were its own; "
            "give algorithm.objective.importance_cap=2 (truncated importance sampling)"
        )


def _check_precision(
    label: str, strategy: StrategySettings, policies: Mapping[str, PolicySpec], critics: Mapping[str, CriticSpec]
) -> None:
    """Under these precisions Fabric sets torch's default dtype while a module computes, for all threads."""
    learns_here = any(spec.place is None for spec in critics.values()) or any(
        spec.train_config is not None and spec.place is None for spec in policies.values()
    )
    decodes_here = any(engine_name(spec.engine) == "TorchEngine" for spec in policies.values())
    if strategy.precision in ("bf16-true", "64-true") and learns_here and decodes_here:
        raise ConfigError(
            f"{label}: strategy.precision={strategy.precision} sets torch's default dtype for all threads of the "
            "process during an update, and the torch engine decodes in one of them; give 32-true or bf16-mixed, pools "
            "processes of their own (policies.NAME.devices), or engine=vllm"
        )
