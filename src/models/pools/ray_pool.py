"""A pool as Ray actors, one for each of its processes, and its handle in the process of the run."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from ...cluster.actors import ActorGroup, Answer, LostActorError, answered, settle
from ...cluster.execution import Execution
from ...cluster.weights import StoredWeights, packed
from .pool import Pool
from .pool_process import CALLS, PoolProcessError, RemotePool, versions

GRACE_S = 30
"""For how long a process's error waits for the loss of another one, which may be its cause."""


class RayPool(RemotePool):
    """A pool that ``build`` makes in each of ``world`` actors, on as few nodes as have room for them.

    Weights stay in the object store of the first actor's node, until an engine's actor asks for them.  Raises what
    ``build`` raised there, :class:`...cluster.actors.ClusterError`, and :class:`...cluster.actors.LostActorError`.
    """

    def __init__(self, names: list[str], build: Callable[[], Pool], world: int, execution: Execution) -> None:
        super().__init__(names)
        self.group = ActorGroup(f"pool {self.names}", PoolActor, world, execution.resources.pool, execution)
        with self.group.starting():
            meeting: dict[str, str] = {}
            if world > 1:
                host, port = self.group.ray.get(self.group.actors[0].address.remote())
                meeting = {"WORLD_SIZE": str(world), "LOCAL_RANK": "0", "MASTER_ADDR": host, "MASTER_PORT": str(port)}
            environments = [meeting | {"NODE_RANK": str(rank)} if meeting else {} for rank in range(world)]
            common = build, os.getcwd(), torch.get_num_threads()
            self.versions = self.group.ray.get(self._answer([(each, *common) for each in environments], "begin"))

    def _call(self, method: str, *arguments: Any) -> Any:
        if not self.group.actors:
            raise LostActorError(f"the pool of {self.names} has ended")
        stored = [self.group.ray.put(argument) for argument in arguments]  # once, however many processes read it
        answer = self._answer([stored] * len(self.group.actors), "call", method)
        return StoredWeights(answer) if method == "weights" else self.group.ray.get(answer)

    def _answer(self, by_rank: Sequence[Sequence[Any]], name: str, *common: Any) -> Any:
        """The reference of the first process's answer, once all have answered."""
        ray, calls = self.group.ray, [getattr(actor, name) for actor in self.group.actors]
        answers = [call.options(num_returns=2).remote(*common, *own) for call, own in zip(calls, by_rank, strict=True)]
        waiting = [error for _, error in answers]
        failed: Exception | None = None
        while waiting:
            done, waiting = ray.wait(waiting, timeout=GRACE_S if failed else None)
            if not done:
                break
            try:
                error = ray.get(done[0])  # also after a failure, whose cause may be a process that is lost
                failed = failed or error
            except self.group.lost as lost:
                self._end()
                raise LostActorError(f"{self.group.name}: a process, or its node, has ended") from lost
        if failed is not None:
            self._end()
            raise failed
        return answers[0][0]

    def _end(self) -> None:
        self.group.end()


class PoolActor:
    """A process of a pool."""

    def address(self) -> tuple[str, int]:
        """Where the pool's processes meet: this node, and a port that is free."""
        with socket.socket() as free:
            free.bind(("", 0))
            return import_module("ray.util").get_node_ip_address(), free.getsockname()[1]

    def begin(self, environment: dict[str, str], build: Callable[[], Pool], folder: str, threads: int) -> Answer:
        """Build the pool; the versions of its policies."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is for the run
        os.environ |= environment
        settle(folder, threads)

        def work() -> dict[str, int]:
            self.pool = build()
            return versions(self.pool)

        return answered(work, PoolProcessError)

    def call(self, method: str, *arguments: Any) -> Answer:
        """See :meth:`RemotePool.call`."""

        def work() -> Any:
            result = CALLS[method](self.pool, *arguments)
            return packed(result) if method == "weights" else result

        return answered(work, PoolProcessError)
