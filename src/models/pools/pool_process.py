"""A pool in processes of its own, and its handle in the process of the run.

All of a pool's processes get every call, in the same order, so that a sharded pool gathers its weights together; the
first one's answer is the handle's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...cluster.actors import answered
from ...experience import Sample
from ...kernels.memory import trim_heap
from ..learning.learner import Groups
from .pool import Pool


class PoolProcessError(RuntimeError):
    """A process of a pool that has ended, or that failed with an error that cannot be sent."""


class RemotePool(ABC):
    """The handle of a pool in other processes.

    Raises what was raised there.  After an error all of the pool's processes are ended: those that have not failed may
    wait for the others.
    """

    versions: dict[str, int]

    def __init__(self, names: list[str]) -> None:
        self.names, self.lock = ", ".join(names), threading.Lock()
        self.policies = {name: PolicyProxy(self, name) for name in names}

    async def update(self, batches: Mapping[str, Groups], by_agent: bool = False) -> dict[str, dict[str, float]]:
        """See :class:`.handles.PoolHandle`.  A cancelled call still runs to its end."""
        metrics, self.versions = await asyncio.to_thread(self.call, "update", batches, by_agent)
        return metrics

    async def close(self) -> None:
        """See :class:`.handles.PoolHandle`.  A call that is under way ends first."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self.lock:
            self._end()

    def call(self, method: str, *arguments: Any) -> Any:
        """What the function of this name in :data:`CALLS` returns in the first process, once all have answered."""
        with self.lock:
            return self._call(method, *arguments)

    @abstractmethod
    def _call(self, method: str, *arguments: Any) -> Any: ...

    @abstractmethod
    def _end(self) -> None:
        """End the processes.  May be called twice."""


class ProcessPool(RemotePool):
    """A pool that ``build``, which must be fit for pickle, makes in each of ``world`` new processes of this machine.

    Raises what ``build`` raised there, and :class:`PoolProcessError`.
    """

    def __init__(self, names: list[str], build: Callable[[], Pool], world: int) -> None:
        super().__init__(names)
        context = multiprocessing.get_context("spawn")
        meeting = {} if world == 1 else {"WORLD_SIZE": str(world), "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
        if meeting:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                meeting["MASTER_PORT"] = str(free.getsockname()[1])
        self.connections: list[Connection] = []
        self.processes = []
        for rank in range(world):
            mine, its = context.Pipe()
            environment = meeting | {"LOCAL_RANK": str(rank)} if meeting else {}
            arguments = its, build, environment, torch.get_num_threads()
            process = context.Process(target=_serve, args=arguments, name=f"pool {self.names}, {rank}", daemon=True)
            process.start()
            its.close()
            self.connections.append(mine)
            self.processes.append(process)
        self.versions = self._answer()

    def _call(self, method: str, *arguments: Any) -> Any:
        if not self.connections:
            raise PoolProcessError(f"the pool of {self.names} has ended")
        for connection in self.connections:
            with suppress(BrokenPipeError):  # a process that has ended; its answer says so
                connection.send((method, arguments))
        return self._answer()

    def _answer(self) -> Any:
        """The first process's answer, once all have one."""
        answers: dict[Connection, Any] = {}
        while waiting := [each for each in self.connections if each not in answers]:
            for connection in wait(waiting):
                assert isinstance(connection, Connection)
                failed: BaseException | None = None
                try:
                    answers[connection], failed = pickle.loads(connection.recv_bytes())
                except (EOFError, ConnectionResetError):
                    process = self.processes[self.connections.index(connection)]
                    process.join(5)
                    failed = PoolProcessError(f"the process '{process.name}' ended with code {process.exitcode}")
                if failed is not None:
                    self._end()
                    raise failed
        return answers[self.connections[0]]

    def _end(self) -> None:
        for connection in self.connections:
            connection.close()  # a process that waits for a call ends by that
        for process in self.processes:
            process.join(2)
            process.kill()
            process.join()
        self.connections, self.processes = [], []


class PolicyProxy:
    """The handle of one policy of a :class:`RemotePool`; see :class:`.handles.PolicyHandle`."""

    sharded = False  # whatever its pool does: the run has one process, and one handle calls all of the pool's

    def __init__(self, pool: RemotePool, name: str) -> None:
        self.pool, self.name = pool, name

    @property
    def version(self) -> int:
        return self.pool.versions[self.name]

    async def weights(self) -> Mapping[str, Tensor]:
        weights: Mapping[str, Tensor] = await asyncio.to_thread(self.pool.call, "weights", self.name)
        return weights

    async def reference_logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        scores: list[tuple[float, ...]] = await asyncio.to_thread(self.pool.call, "reference", self.name, samples)
        return scores

    async def logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        scores: list[tuple[float, ...]] = await asyncio.to_thread(self.pool.call, "logprobs", self.name, samples)
        return scores

    def save(self, folder: Path) -> None:
        self.pool.call("save", self.name, folder)

    def restore(self, folder: Path) -> None:
        self.pool.versions = self.pool.call("restore", self.name, folder)


# ---- in a pool's process --------------------------------------------------------------------------------------------


def _serve(connection: Connection, build: Callable[[], Pool], environment: dict[str, str], threads: int) -> None:
    """Build the pool, and answer calls until the run's process has closed the connection, or ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is for the run
    os.environ |= environment
    torch.set_num_threads(threads)
    pools: list[Pool] = []

    def begin() -> dict[str, int]:
        pools.append(build())
        return versions(pools[0])

    _reply(connection, begin)
    while pools:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        _reply(connection, partial(CALLS[method], pools[0], *arguments))


def _reply(connection: Connection, work: Callable[[], Any]) -> None:
    """Send the answer of ``work``."""
    pickled = pickle.dumps(answered(work, PoolProcessError))
    with suppress(BrokenPipeError):  # the run has ended
        connection.send_bytes(pickled)  # `send` would put tensors into shared memory, which may be small


def versions(pool: Pool) -> dict[str, int]:
    """Of each policy."""
    return {name: policy.version for name, policy in pool.policies.items()}


def _update(
    pool: Pool, batches: Mapping[str, Groups], by_agent: bool
) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
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


CALLS: dict[str, Callable[..., Any]] = {
    "update": _update,
    "weights": _weights,
    "reference": _reference,
    "logprobs": _logprobs,
    "save": _save,
    "restore": _restore,
}
"""By name, what the run's process may ask for."""
