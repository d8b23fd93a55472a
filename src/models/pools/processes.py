"""A part of the run, such as a pool or a critic, in processes of this machine or in actors of Ray."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ...cluster.actors import ActorGroup, Answer, LostActorError, Packed, StoredWeights, answered, packed, settle
from ...cluster.execution import Execution, Resources

T = TypeVar("T")


class ProcessError(RuntimeError):
    """A process that has ended, or that failed with an error that cannot be sent."""


class Processes(Protocol):
    """Processes, here or elsewhere, in each of which an object was built.

    All of them get every call, in the same order, so that a sharded pool gathers its weights together.  Raises what was
    raised there.  After an error of one of several all are ended: those that have not failed may wait for the others.
    """

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """What ``function(object, *arguments)`` returns in the first process, once all have answered."""

    def stored(self, function: Callable[..., Mapping[str, Tensor]], *arguments: Any) -> Mapping[str, Tensor]:
        """As :meth:`call`, of weights, which may stay there until they are read."""

    def end(self) -> None:
        """End the processes.  May be called twice."""


class LocalProcesses:
    """``count`` new processes of this machine, in each of which ``build``, fit for pickle, makes an object.

    Raises what ``build`` raised there, and :class:`ProcessError`.
    """

    def __init__(self, name: str, build: Callable[[], Any], count: int) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        meeting = {} if count == 1 else {"WORLD_SIZE": str(count), "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
        if meeting:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                meeting["MASTER_PORT"] = str(free.getsockname()[1])
        self.connections: list[Connection] = []
        self.processes = []
        for rank in range(count):
            mine, its = context.Pipe()
            environment = meeting | {"LOCAL_RANK": str(rank)} if meeting else {}
            arguments = its, build, environment, torch.get_num_threads()
            process = context.Process(target=_serve, args=arguments, name=f"{name}, {rank}", daemon=True)
            process.start()
            its.close()
            self.connections.append(mine)
            self.processes.append(process)
        self._answer()

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """See :class:`Processes`."""
        if not self.connections:
            raise ProcessError(f"{self.name} has ended")
        for connection in self.connections:
            with suppress(BrokenPipeError):  # a process that has ended; its answer says so
                connection.send((function, arguments))
        result: T = self._answer()
        return result

    stored = call

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
                    failed = ProcessError(f"the process '{process.name}' ended with code {process.exitcode}")
                if failed is not None:
                    self.end()
                    raise failed
        return answers[self.connections[0]]

    def end(self) -> None:
        """See :class:`Processes`."""
        for connection in self.connections:
            connection.close()  # a process that waits for a call ends by that
        for process in self.processes:
            process.join(2)
            process.kill()
            process.join()
        self.connections, self.processes = [], []


def _serve(connection: Connection, build: Callable[[], Any], environment: dict[str, str], threads: int) -> None:
    """Build the object, and answer calls until the run's process has closed the connection, or ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is for the run
    os.environ |= environment
    torch.set_num_threads(threads)
    built: list[Any] = []
    _reply(connection, lambda: built.append(build()))
    while built:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        _reply(connection, partial(function, built[0], *arguments))


def _reply(connection: Connection, work: Callable[[], Any]) -> None:
    """Send the answer of ``work``."""
    pickled = pickle.dumps(answered(work, ProcessError))
    with suppress(BrokenPipeError):  # the run has ended
        connection.send_bytes(pickled)  # `send` would put tensors into shared memory, which may be small


GRACE_S = 30
"""For how long a process's error waits for the loss of another one, which may be its cause."""


class RayProcesses:
    """``count`` actors, on as few nodes as have room for them, in each of which ``build`` makes an object; see
    :class:`Processes`.

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
        """See :class:`Processes`."""
        answer = self._call(function, *arguments)
        try:
            result: T = self.group.ray.get(answer)
        except self.group.lost as lost:  # since it answered
            raise self._lost() from lost
        return result

    def stored(self, function: Callable[..., Mapping[str, Tensor]], *arguments: Any) -> Mapping[str, Tensor]:
        """See :class:`Processes`."""
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
        """See :class:`Processes`."""
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
        """See :meth:`Processes.call`."""
        return answered(partial(function, self.object, *arguments), ProcessError)


def _packed(function: Callable[..., Mapping[str, Tensor]], *arguments: Any) -> Packed:
    return packed(function(*arguments))
