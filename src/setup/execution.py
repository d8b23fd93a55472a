"""What ``execution=ray`` runs, and what it refuses with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..cluster.settings import Execution, Resources
from ..envs.base import TeamEnv
from ..errors import ConfigError
from ..rollout.samplers.base import Sampler
from ..rollout.samplers.spread import SpreadSampler
from .critics import CriticSpec
from .engines import count_of, engine_name
from .instantiation import part
from .policies import PolicySpec
from .sections import RunConfig
from .worlds import build_world


def check_on_ray(execution: Execution, policies: Mapping[str, PolicySpec], critics: Mapping[str, CriticSpec]) -> None:
    """Raise :class:`ConfigError`, naming the key, for what has no actor, or one without the resources that it needs."""
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


def spread(sampler: Sampler, run: RunConfig) -> SpreadSampler:
    """``sampler``, whose episodes are played by the actors that ``execution.worlds`` asks for."""
    return SpreadSampler(sampler, partial(_rollout, run.env, run.algorithm.sampler), run.execution)


def _rollout(env: Mapping[str, Any], sampler: Mapping[str, Any]) -> tuple[TeamEnv, Sampler]:
    """In each of these actors."""
    made: Sampler = part("algorithm.sampler", sampler, "collect")
    return build_world("env", env), made


def actors(execution: Execution, groups: Sequence[Sequence[PolicySpec]], critics: Iterable[str]) -> Iterator[str]:
    """A line on each placement group of a run whose backbones are ``groups``, and one on all of them."""
    kinds, parts = execution.resources, list[tuple[str, int, Resources]]()
    for specs in groups:
        names, place = ", ".join(spec.name for spec in specs), specs[0].place
        parts += [] if place is None else [(f"pool {names}", place.processes or 1, kinds.pool)]
        parts += [(f"engine of {names}", count_of(specs[0].engine, "data_parallel"), kinds.engine)]
    parts += [(f"critic {name}", 1, kinds.critic) for name in critics]
    parts += [("worlds", execution.worlds, kinds.worlds)] if execution.worlds else []
    for name, count, each in parts:
        yield f"actors: {name}, {count} x {each.bundle}"
    cpus, gpus = (sum(count * getattr(each, kind) for _, count, each in parts) for kind in ("cpus", "gpus"))
    yield f"Ray keeps {cpus:g} CPUs and {gpus:g} GPUs for them"
