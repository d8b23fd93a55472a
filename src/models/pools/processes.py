"""Processes of this machine with a part of the run each: a pool, say."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ...cluster.actors import answered

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
