"""What a pool, or a critic, and its engine need of the devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, estimated: ``weights`` (with the reference that ``kl`` needs), ``gradients``, ``optimizer``
    (two numbers per parameter), ``activations`` (of one micro-batch, scores over the vocabulary included) and
    ``engine`` (its copy of the weights that learn, its cache at ``max_batch_rows`` completions of full length, each K
    after one prompt that fills the context, and the prefixes that it keeps; of vLLM a copy of all weights in its dtype,
    or its shard of one, and the cache of fixed size that it is given; with ``loop.staleness`` above 0 a further copy of
    what learns).

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
    these are its own, memory per device (then the engine's is on the first device alone), the class of the engine,
    empty for a critic, how many processes it has, each with such memory, and where the first of several is: a GPU, or
    auto.
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
    engine: str = ""
    engine_processes: int = 1
    engine_device: str = "auto"


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
    if pool.engine_processes == 1:
        return {pool.devices[0]: 1} if pool.placed else dict.fromkeys(pool.devices, processes)
    first = pool.devices[0] if pool.engine_device == "auto" else pool.engine_device
    kind, _, index = first.partition(":")
    if not index:
        return {first: pool.engine_processes * (1 if pool.placed else processes)}
    return {f"{kind}:{int(index) + step}": 1 for step in range(pool.engine_processes)}
