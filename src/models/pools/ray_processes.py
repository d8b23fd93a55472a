"""Ray actors with a part of the run each: a pool or a critic."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...cluster.actors import ActorGroup, Answer, LostActorError, answered, settle
from ...cluster.execution import Execution, Resources
from ...cluster.weights import Packed, StoredWeights, packed
from .processes import ProcessError

T = TypeVar("T")
GRACE_S = 30
"""For how long a process's error waits for the loss of another one, which may be its cause."""


class RayProcesses:
    """``count`` actors, on as few nodes as have room for them, in each of which ``build`` makes an object; see
    :class:`.processes.Processes`.

    Weights stay in the object store of the first actor's node, until an engine's actor asks for them.  Raises what
    ``build`` raised there, :class:`...cluster.actors.ClusterError`, and :class:`...cluster.actors.LostActorError`.
    """

    def __init__(self, name: str, build: Callable[[], Any], count: int, each: Resources, execution: Execution) -> None:
        self.group = ActorGroup(name, ProcessActor, count, each, execution)
        with self.group.starting():
            meeting: dict[str, str] = {}
            if count > 1:
                host, port = self.group.ray.get(self.group.actors[0].address.remote())
                meeting = {"WORLD_SIZE": str(count), "LOCAL_RANK": "0", "MASTER_ADDR": host, "MASTER_PORT": str(port)}
            environments = [meeting | {"NODE_RANK": str(rank)} if meeting else {} for rank in range(count)]
            common = build, os.getcwd(), torch.get_num_threads()
            self._answer([(each, *common) for each in environments], "begin")

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """See :class:`.processes.Processes`."""
        answer = self._call(function, *arguments)
        try:
            result: T = self.group.ray.get(answer)
        except self.group.lost as lost:  # since it answered
            raise self._lost() from lost
        return result

    def stored(self, function: Callable[..., Mapping[str, Tensor]], *arguments: Any) -> Mapping[str, Tensor]:
        """See :class:`.processes.Processes`."""
        return StoredWeights(self._call(partial(_packed, function), *arguments))

    def _lost(self) -> LostActorError:
        self.end()
        return LostActorError(f"{self.group.name}: a process, or its node, has ended")

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if not self.group.actors:
            raise LostActorError(f"{self.group.name} has ended")
        stored = [self.group.ray.put(argument) for argument in arguments]  # once, however many processes read it
        return self._answer([stored] * len(self.group.actors), "call", function)

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
                raise self._lost() from lost
        if failed is not None:
            if len(answers) > 1:
                self.end()
            raise failed
        return answers[0][0]

    def end(self) -> None:
        """See :class:`.processes.Processes`."""
        self.group.end()


class ProcessActor:
    """One of these processes."""

    def address(self) -> tuple[str, int]:
        """Where they meet: this node, and a port that is free."""
        with socket.socket() as free:
            free.bind(("", 0))
            return import_module("ray.util").get_node_ip_address(), free.getsockname()[1]

    def begin(self, environment: dict[str, str], build: Callable[[], Any], folder: str, threads: int) -> Answer:
        """Build the object."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is for the run
        os.environ |= environment
        settle(folder, threads)

        def work() -> None:
            self.object = build()

        return answered(work, ProcessError)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Answer:
        """See :meth:`.processes.Processes.call`."""
        return answered(partial(function, self.object, *arguments), ProcessError)


def _packed(function: Callable[..., Mapping[str, Tensor]], *arguments: Any) -> Packed:
    return packed(function(*arguments))
