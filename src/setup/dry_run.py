"""``dry_run=true``: what a run would do and need, without loading weights, training or writing anything."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..cluster.execution import Execution, Resources
from ..errors import number_of
from ..models.pools.strategies import DeepSpeed, Sharded, StrategySettings
from ..rollout.engines.local import cache_numbers, inner_width
from ..rollout.engines.outline import Outline, Shape
from ..rollout.engines.remote.settings import RemoteSettings
from ..rollout.engines.vllm.settings import GIB, VllmSettings
from .checks import meta_model, shape_of
from .critics import CriticSpec
from .instantiation import call
from .parts import Parts
from .policies import PolicySpec, backbones
from .sections import count_of, engine_name, engine_processes

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, estimated: ``weights`` (with the reference that ``kl`` needs), ``gradients``, ``optimizer``
    (two numbers per parameter), ``activations`` (of one micro-batch, scores over the vocabulary included) and
    ``engine`` (its copy of the weights that learn, its cache at ``max_batch_rows`` completions of full length, each K
    after one prompt that fills the context, and the prefixes that it keeps, without the copies of matrices by which
    bfloat16 decodes on some CPUs; of vLLM a copy of all weights in its dtype, or its shard of one, and the cache of
    fixed size that it is given; with ``loop.staleness`` above 0 a further copy of what learns).

    A strategy that shards the first three leaves each process its part, adapters excepted, and none of what it offloads
    to the host.  Where it shards weights, a pass gathers those outside of the layers and of two layers, with gradients
    of one, which ``activations`` has; and for the engine all that learn are ``gathered``, when there are no
    activations.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    gathered: float
    engine: float

    @property
    def total(self) -> float:
        """At the most."""
        return self.weights + self.gradients + self.optimizer + max(self.activations, self.gathered) + self.engine


@dataclass(frozen=True)
class PoolPlan:
    """One pool: its policies (or its critic), the agents that speak with them (or that it judges), their base, its
    parameters, how many numbers learn, the devices and processes that it has (None: as the machine decides), whether
    these are its own, memory per device (then the engine's is on the first device alone), and the configuration of the
    engine, empty for a critic.
    """

    policy: str
    agents: tuple[str, ...]
    base: str
    parameters: int
    trained: int
    devices: tuple[str, ...]
    processes: int | None
    placed: bool
    memory: Memory
    engine: Mapping[str, Any] = field(default_factory=dict)


def by_device(pools: Sequence[PoolPlan]) -> dict[str, tuple[str, float]]:
    """By device, which pools are there, and the bytes that they need together.  The CPU has all processes."""
    names: dict[str, list[str]] = {}
    sizes: dict[str, float] = {}
    for pool in pools:
        processes = (pool.processes or 1) if len(pool.devices) == 1 else 1
        for device in pool.devices:
            names.setdefault(device, []).append(pool.policy)
            learner = pool.memory.total - pool.memory.engine
            sizes[device] = sizes.get(device, 0.0) + processes * learner
        for device, engines in _engine_devices(pool, processes).items():
            if device not in pool.devices:
                names.setdefault(device, []).append(f"engine of {pool.policy}")
            sizes[device] = sizes.get(device, 0.0) + engines * pool.memory.engine
    return {device: (" + ".join(names[device]), sizes[device]) for device in names}


def _engine_devices(pool: PoolPlan, processes: int) -> dict[str, int]:
    """How many processes of engines each device has, with ``processes`` of the learner on each of the pool's.

    Pools of their own processes have one engine, on the first device; processes of the run have one each.  Of several
    processes of an engine each is on a GPU, the next ones.
    """
    if (count := engine_processes(pool.engine)) == 1:
        return {pool.devices[0]: 1} if pool.placed else dict.fromkeys(pool.devices, processes)
    device = pool.engine.get("device", "auto")
    first = pool.devices[0] if device == "auto" else device
    kind, _, index = first.partition(":")
    if not index:
        return {first: count * (1 if pool.placed else processes)}
    return {f"{kind}:{int(index) + step}": 1 for step in range(count)}


ADAM_STATES = 2
"""Numbers per parameter that an optimizer of Adam's family keeps."""


@dataclass(frozen=True)
class RemotePlan:
    """One remote policy: its agents, its server, and the most that an iteration can ask of it."""

    policy: str
    agents: tuple[str, ...]
    server: RemoteSettings
    completions: int
    tokens: int


@dataclass(frozen=True)
class Plan:
    """What a run would do; ``completions`` and ``tokens`` are the most that an iteration can generate."""

    pools: tuple[PoolPlan, ...]
    remote: tuple[RemotePlan, ...]
    scripted: tuple[str, ...]
    """A sentence on each scripted policy."""
    tasks_per_iteration: int
    k: int
    completions: int
    tokens: int
    optimizer_steps: int
    iterations: int
    processes: int | None
    trees: str = ""
    """A line on the training trees, where some are kept."""
    actors: tuple[str, ...] = ()
    """With execution=ray, a line on each placement group."""

    def __str__(self) -> str:
        """As ``dry_run=true`` prints it."""
        console = Console(file=io.StringIO(), width=120)
        with console.capture() as text:
            console.print(*tables(self), sep="\n", highlight=False)
        return text.get()


def plan(parts: Parts) -> Plan:
    """The plan of a checked configuration.  Raises :class:`ConfigError` where a base model cannot be found."""
    agents, k = parts.world.agents, parts.sampler.k
    longest = {agent: parts.policies[parts.router.team[agent]].sampling_of(agent)[0].max_tokens for agent in agents}
    tasks = parts.settings.tasks_per_iteration * (1 + parts.sampler.resample)
    most = {agent: tasks * count for agent, count in parts.sampler.max_completions(parts.world).items()}
    update, execution = parts.config.algorithm.update, parts.config.execution
    return Plan(
        pools=(
            *(_pool(specs, parts) for specs in backbones(parts.policies)),
            *(_critic(spec, parts) for spec in parts.critics.values()),
        ),
        remote=tuple(_remote(spec, parts.router.team, most) for spec in parts.policies.values() if spec.remote),
        scripted=tuple(_scripted(spec, parts.router.team) for spec in parts.policies.values() if spec.skill),
        tasks_per_iteration=parts.settings.tasks_per_iteration,
        k=k,
        completions=sum(most.values()),
        tokens=sum(most[agent] * longest[agent] for agent in agents),
        optimizer_steps=update.mini_batches * update.epochs,
        iterations=parts.settings.iterations,
        processes=parts.strategy.processes,
        trees=_trees(parts),
        actors=tuple(_actors(execution, backbones(parts.policies), parts.critics)) if execution.on_ray else (),
    )


def _trees(parts: Parts) -> str:
    settings = parts.config.diagnostics
    if not (settings.enabled and settings.trees.every):
        return ""
    tasks = min(settings.trees.tasks, parts.settings.tasks_per_iteration)
    watched = min(settings.trees.watched, parts.settings.validation_tasks)
    most = watched * sum(parts.sampler.max_completions(parts.world).values())
    return (
        f"training trees, every {number_of(settings.trees.every, 'iteration')}: {tasks} of the tasks, and "
        f"{number_of(watched, 'validation task')} with at most {most:,} completions more"
    )


def _pool(specs: Sequence[PolicySpec], parts: Parts) -> PoolPlan:
    first, names = specs[0], [spec.name for spec in specs]
    strategy = first.place or parts.strategy
    shape = shape_of(f"policies.{first.name}.base", first.base)
    model = meta_model(shape)
    parameters = sum(p.numel() for p in model.parameters())
    adapters = sum(_adapter(spec, model) for spec in specs)
    trained = parameters if first.full_weights else adapters
    configs = [spec.train_config for spec in specs if spec.train_config is not None]
    reference = parameters if first.full_weights and any(config.objective.kl for config in configs) else 0
    tokens = max((config.update.max_tokens for config in configs), default=0)
    number, zero = strategy.number_bytes, isinstance(strategy.strategy, DeepSpeed)
    part = partial(_share, strategy) if first.full_weights or zero else lambda _: 1.0
    base = number if first.full_weights else min(number, strategy.frozen_dtype.itemsize)
    memory = Memory(
        weights=base * (parameters + reference) * _share(strategy, "weights")
        + number * (adapters + (trained * part("optimizer") if zero else 0)),  # DeepSpeed steps copies of its shards
        gradients=number * trained * part("gradients"),
        optimizer=number * ADAM_STATES * trained * part("optimizer"),
        activations=base * (tokens * _activations(shape, strategy.gradient_checkpointing) + _pass(model, strategy)),
        gathered=number * trained if first.full_weights and "weights" in strategy.shards else 0.0,
        engine=_engine(first.engine, shape, specs, parts.sampler.k, parameters + adapters, trained)
        + (base * parameters if "weights" in strategy.shards and not first.full_weights else 0)
        + (number * trained if parts.settings.staleness and "kv_cache_gib" in first.engine else 0),
    )
    agents = tuple(agent for agent, policy in parts.router.team.items() if policy in names)
    where = strategy.device_names, strategy.processes, first.place is not None
    return PoolPlan(", ".join(names), agents, first.base, parameters + adapters, trained, *where, memory, first.engine)


def _pass(model: PreTrainedModel | Outline, strategy: StrategySettings) -> int:
    """Numbers that a pass gathers of a ``model`` whose weights are in shards: what is outside of the layers, and one
    layer while the next arrives; and their gradients, of one layer at a time; each in a message, too.
    """
    if "weights" not in strategy.shards:
        return 0
    layers = [part for part in model.modules() if type(part).__name__ in (model._no_split_modules or ())]
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    outside = sum(p.numel() for p in model.parameters()) - sum(sizes)
    return 4 * outside + 6 * max(sizes)


def _critic(spec: CriticSpec, parts: Parts) -> PoolPlan:
    """A critic as a pool that no engine speaks for; its head has one number per hidden unit, and one more."""
    shape = shape_of("algorithm.critic.base", spec.base)
    trained = sum(p.numel() for p in meta_model(shape).base_model.parameters()) + shape.hidden_size + 1
    strategy = spec.place or parts.strategy
    number = strategy.number_bytes
    per_token = _activations(shape, strategy.gradient_checkpointing) - 2 * shape.vocab_size
    memory = Memory(
        weights=number * trained * _share(strategy, "weights"),
        gradients=number * trained * _share(strategy, "gradients"),
        optimizer=number * ADAM_STATES * trained * _share(strategy, "optimizer"),
        activations=number * spec.settings.max_tokens * per_token,
        gathered=0.0,
        engine=0.0,
    )
    agents = tuple(agent for agent, policy in parts.router.team.items() if policy in spec.policies)
    where = strategy.device_names, strategy.processes, spec.place is not None
    return PoolPlan(f"critic {spec.name}", agents, spec.base, trained, trained, *where, memory)


def _engine(
    engine: Mapping[str, Any],
    shape: PretrainedConfig | Shape,
    specs: Sequence[PolicySpec],
    k: int,
    parameters: int,
    trained: int,
) -> float:
    """Bytes of weights and cache; see :class:`Memory`."""
    if "kv_cache_gib" in engine:
        settings = {each.name: engine[each.name] for each in fields(VllmSettings) if each.name in engine}
        vllm: VllmSettings = call("engine", VllmSettings, **settings)
        return vllm.torch_dtype.itemsize * parameters / vllm.tensor_parallel + vllm.kv_cache_gib * GIB
    rows = engine.get("max_batch_rows", k)
    full, groups = shape.max_position_embeddings, math.ceil(rows / k)
    cached = sum(rows * spec.train.max_tokens + groups * (full - spec.train.max_tokens) for spec in specs)
    itemsize = 2 if engine.get("dtype") == "bfloat16" else 4
    most = engine.get("max_cache_gib")
    cache = min(itemsize * cached * cache_numbers(shape), math.inf if most is None else len(specs) * most * GIB)
    return itemsize * trained + cache + len(specs) * engine.get("prefix_cache_gib", 0) * GIB


def _adapter(spec: PolicySpec, model: PreTrainedModel | Outline) -> int:
    """Numbers of the policy's adapter; 0 without.  Raises :class:`ConfigError` naming a target that is not there."""
    return 0 if spec.lora is None else call(f"policies.{spec.name}.lora", spec.lora.parameters, model)


def _share(strategy: StrategySettings, what: str) -> float:
    """How much of a pool's ``what`` lies on one device."""
    if what not in strategy.shards:
        return 1.0
    assert isinstance(strategy.strategy, Sharded)
    return 0.0 if what in strategy.strategy.offloads else 1 / (strategy.processes or 1)


def _activations(shape: PretrainedConfig | Shape, recomputed: bool) -> int:
    """Numbers per token that a backward pass keeps: about 14 hidden and 4 intermediate vectors per layer (counted of a
    Qwen3's saved tensors; of a Qwen2 and a Llama 10 and 4), and scores over the vocabulary with their softmax; without
    attention's own scores.  ``recomputed``, each layer keeps its input, and one layer at a time the rest.
    """
    layer = 14 * shape.hidden_size + 4 * inner_width(shape)
    layers = shape.num_hidden_layers
    return (layers * shape.hidden_size + layer if recomputed else layers * layer) + 2 * shape.vocab_size


def tables(run_plan: Plan) -> Sequence[Table | str]:
    """The plan for people."""
    pools = Table("pool", *(pool.policy for pool in run_plan.pools))
    pools.add_row("agents", *(", ".join(pool.agents) for pool in run_plan.pools))
    pools.add_row("base", *(pool.base for pool in run_plan.pools))
    pools.add_row("parameters", *(f"{pool.parameters:,}" for pool in run_plan.pools))
    pools.add_row("of which learn", *(f"{pool.trained:,}" for pool in run_plan.pools))
    pools.add_row("engine class", *(_engine_title(pool) for pool in run_plan.pools))
    pools.add_row("completions at once", *(str(pool.engine.get("max_batch_rows", "")) for pool in run_plan.pools))
    pools.add_row("devices", *(_devices(pool) for pool in run_plan.pools), end_section=True)
    for each in fields(Memory):
        pools.add_row(each.name, *(_bytes(getattr(pool.memory, each.name)) for pool in run_plan.pools))
    pools.add_row("memory per device", *(_bytes(pool.memory.total) for pool in run_plan.pools))
    processes = "strategy.devices=auto: as for 1 process"
    if run_plan.processes is not None:
        processes = number_of(run_plan.processes, "process", "processes")
    return (
        pools,
        processes,
        *(run_plan.actors or _device_lines(run_plan.pools)),
        "(estimated; of an embedded engine the most, with prompts as long as its context: its cache grows with what it "
        "really decodes)",
        *(_remote_line(each) for each in run_plan.remote),
        *run_plan.scripted,
        f"per iteration: {number_of(run_plan.tasks_per_iteration, 'task')}, K = {run_plan.k}, at most "
        f"{number_of(run_plan.completions, 'completion')} of {run_plan.tokens:,} tokens; "
        f"{number_of(run_plan.optimizer_steps, 'optimizer step')} per policy",
        *([run_plan.trees] if run_plan.trees else ()),
        f"{number_of(run_plan.iterations, 'iteration')}: "
        f"at most {number_of(run_plan.iterations * run_plan.completions, 'completion')}",
    )


def _engine_title(pool: PoolPlan) -> str:
    count = engine_processes(pool.engine)
    return engine_name(pool.engine).strip("?") + (f", {count} processes" if count > 1 else "")


def _devices(pool: PoolPlan) -> str:
    count = "" if pool.processes in (None, 1) else f" ({pool.processes} processes)"
    return f"{_listed(pool.devices)}{count}{', its own' if pool.placed else ''}"


def _device_lines(pools: Sequence[PoolPlan]) -> Iterator[str]:
    """Devices that have the same pools and need the same are in one line."""
    alike: dict[tuple[str, float], list[str]] = {}
    for device, what in by_device(pools).items():
        alike.setdefault(what, []).append(device)
    for (names, size), devices in alike.items():
        each = " each" if len(devices) > 1 else ""
        yield f"{_listed(devices)}: {names}, about {_bytes(size)}{each}{_gpu(devices[0], size)}"


def _gpu(device: str, size: float) -> str:
    """The smallest usual GPU with a tenth to spare, for CUDA itself and for memory that falls into pieces; nothing
    where a CPU will do."""
    if device.startswith("cpu") or (device.startswith("auto") and size < 8 * GIB):
        return ""
    gigabytes = next((each for each in (16, 24, 40, 48, 80, 141, 180) if size < 0.9e9 * each), None)
    return f": a GPU of {gigabytes} GB" if gigabytes else ": more than a GPU has; a strategy can shard it"


def _listed(devices: Sequence[str]) -> str:
    return ", ".join(devices) if len(devices) < 4 else f"{devices[0]} ... {devices[-1]}"


def _remote(spec: PolicySpec, team: Mapping[str, str], most: Mapping[str, int]) -> RemotePlan:
    assert spec.remote is not None
    agents = tuple(agent for agent, policy in team.items() if policy == spec.name)
    completions = sum(most[agent] for agent in agents)
    return RemotePlan(spec.name, agents, spec.remote, completions, completions * spec.train.max_tokens)


def _scripted(spec: PolicySpec, team: Mapping[str, str]) -> str:
    agents = ", ".join(agent for agent, policy in team.items() if policy == spec.name)
    how = "it is silent" if spec.skill == "silent" else f"skill {spec.skill} of the world's demonstrator"
    return f"{spec.name} ({agents}) is scripted: {how}"


def _remote_line(remote: RemotePlan) -> str:
    price = remote.server.completion_price
    cost = "" if price is None else f", which cost {remote.tokens * price / 1e6:.3g} and their prompts"
    server = f"{remote.server.url}, model {remote.server.model}"
    return (
        f"{remote.policy} ({', '.join(remote.agents)}) speaks through {server}: at most {remote.completions:,} "
        f"completions of {remote.tokens:,} tokens per iteration{cost}"
    )


def _bytes(count: float) -> str:
    power = min(4, int(math.log(max(count, 1), 1024)))
    return f"{count / 1024**power:.3g} {['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}"


def _actors(execution: Execution, groups: Sequence[Sequence[PolicySpec]], critics: Iterable[str]) -> Iterator[str]:
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
