"""Pools and critics in processes of their own: their handles in the process of the run, and what these call there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor

from ...experience import Sample
from ...kernels.memory import trim_heap
from ..learning.critic import Critic, ValueSample
from ..learning.learner import Groups
from .pool import Pool
from .processes import Processes

T = TypeVar("T")


class PoolProxy:
    """The handle of the pool that was built in ``processes``, with the policies ``names``; see
    :class:`.handles.PoolHandle`."""

    def __init__(self, names: list[str], processes: Processes) -> None:
        self.processes, self.lock = processes, threading.Lock()
        self.policies = {name: PolicyProxy(self, name) for name in names}
        self.versions = processes.call(versions)

    async def update(self, batches: Mapping[str, Groups], by_agent: bool = False) -> dict[str, dict[str, float]]:
        """See :class:`.handles.PoolHandle`.  A cancelled call still runs to its end."""
        metrics, self.versions = await asyncio.to_thread(self.call, update, batches, by_agent)
        return metrics

    async def close(self) -> None:
        """See :class:`.handles.PoolHandle`.  A call that is under way ends first."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self.lock:
            self.processes.end()

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """See :meth:`.processes.Processes.call`."""
        with self.lock:
            return self.processes.call(function, *arguments)

    def weights(self, name: str) -> Mapping[str, Tensor]:
        """Of the policy ``name``."""
        with self.lock:
            return self.processes.stored(_weights, name)


class PolicyProxy:
    """The handle of one policy of a :class:`PoolProxy`; see :class:`.handles.PolicyHandle`."""

    sharded = False  # whatever its pool does: the run has one process, and one handle calls all of the pool's

    def __init__(self, pool: PoolProxy, name: str) -> None:
        self.pool, self.name = pool, name

    @property
    def version(self) -> int:
        return self.pool.versions[self.name]

    async def weights(self) -> Mapping[str, Tensor]:
        return await asyncio.to_thread(self.pool.weights, self.name)

    async def reference_logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        return await asyncio.to_thread(self.pool.call, _reference, self.name, samples)

    async def logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        return await asyncio.to_thread(self.pool.call, _logprobs, self.name, samples)

    def save(self, folder: Path) -> None:
        self.pool.call(_save, self.name, folder)

    def restore(self, folder: Path) -> None:
        self.pool.versions = self.pool.call(_restore, self.name, folder)


class CriticProxy:
    """The handle of the critic that was built in ``processes``; see :class:`.handles.CriticHandle`.

    Where they are lost, so is what it has learnt since the last checkpoint.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes, self.context = processes, processes.call(attrgetter("context"))

    def evaluate(self, inputs: Sequence[tuple[int, ...]]) -> list[float]:
        return self.processes.call(Critic.evaluate, inputs)

    def update(self, samples: Sequence[ValueSample]) -> dict[str, float]:
        return self.processes.call(Critic.update, samples)

    def state_dict(self) -> dict[str, Any]:
        """On the CPU."""
        return self.processes.call(_state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.processes.call(Critic.load_state_dict, state)

    async def close(self) -> None:
        """May be called twice."""
        self.processes.end()


# ---- in the processes -----------------------------------------------------------------------------------------------


def versions(pool: Pool) -> dict[str, int]:
    """Of each policy."""
    return {name: policy.version for name, policy in pool.policies.items()}


def update(
    pool: Pool, batches: Mapping[str, Groups], by_agent: bool
) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """The metrics of :meth:`.pool.Pool.update`, and :func:`versions`."""
    metrics = asyncio.run(pool.update(batches, by_agent))
    trim_heap()
    return metrics, versions(pool)


def _weights(pool: Pool, name: str) -> dict[str, Tensor]:
    """On the CPU; of the first process, which the others help to gather them."""
    weights = asyncio.run(pool.policies[name].weights())
    return {key: value.cpu() for key, value in weights.items()} if pool.ranks.first else {}


def _reference(pool: Pool, name: str, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
    return asyncio.run(pool.policies[name].reference_logprobs(samples))


def _logprobs(pool: Pool, name: str, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
    return asyncio.run(pool.policies[name].logprobs(samples))


def _save(pool: Pool, name: str, folder: Path) -> None:
    if pool.ranks.first or pool.policies[name].sharded:
        pool.policies[name].save(folder)


def _restore(pool: Pool, name: str, folder: Path) -> dict[str, int]:
    pool.policies[name].restore(folder)
    return versions(pool)


def _state(critic: Critic) -> dict[str, Any]:
    state: dict[str, Any] = move_data_to_device(critic.state_dict(), torch.device("cpu"))
    return state
