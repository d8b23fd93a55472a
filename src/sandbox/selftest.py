"""The self-test: attacks that every worker must withstand before it runs a program."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from .jobs import Expression, Job, Limits, SandboxUnavailable, Verdict
from .worker import Worker

_LIMITS: Final = Limits(cpu_s=5.0, idle_s=5.0)
_TRIES: Final = """
import os

def outcome(action):
    try:
        return repr(action())
    except OSError as error:
        return type(error).__name__

def tries(canary, folder):
    return {
        "read a file": outcome(lambda: open(canary).read()),
        "list a folder": outcome(lambda: os.listdir(folder)),
        "write a file": outcome(lambda: open(folder + "/written", "w")),
        "signal its parent": outcome(lambda: os.kill(os.getppid(), 0)),
        "read its parent's environment": outcome(lambda: open(f"/proc/{os.getppid()}/environ").read()),
    }
"""
_FATAL: Final = {
    "fork": "import os\nos.fork()",
    "run a command": "import os\nos.execv('/bin/true', ['true'])",
    "connect to a port": "import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)",
}


class Trap(NamedTuple):
    """A secret file and a listening port that no program may reach."""

    folder: str
    canary: str
    secret: str
    listener: socket.socket

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def sprung(self) -> bool:
        """Whether a program connected to the port or wrote into the folder."""
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return os.listdir(self.folder) != ["canary"]
        return True


async def check(worker: Worker) -> None:
    """Raise :class:`SandboxUnavailable`, naming the attack, unless ``worker`` withstands all attacks and works."""
    with _trap() as trap:
        arguments = Expression("tries(canary, folder)", {"canary": trap.canary, "folder": trap.folder})
        result = await worker.run(Job(_TRIES, entry=arguments), _LIMITS)
        if not isinstance(result.value, dict):
            raise SandboxUnavailable(f"self-test: a harmless program ended as {result.verdict}: {result.errors}")
        for attack, outcome in result.value.items():
            if outcome not in ("PermissionError", "FileNotFoundError"):
                raise SandboxUnavailable(f"self-test: a program could {attack}: {outcome}")
        for attack, source in _FATAL.items():
            ended = await worker.run(Job(source.format(port=trap.port)), _LIMITS)
            if ended.verdict is not Verdict.FORBIDDEN:
                raise SandboxUnavailable(f"self-test: a program could try to {attack}: {ended.verdict} {ended.errors}")
        if trap.sprung():
            raise SandboxUnavailable("self-test: a program reached a port or wrote a file outside")
    await check_function(worker)


async def check_function(worker: Worker) -> None:
    """Raise :class:`SandboxUnavailable` unless ``worker`` runs a program and keeps its environment empty."""
    program = "import os\nprint(input()[::-1])\nassert not os.environ, os.environ"
    result = await worker.run(Job(program, stdin="depuort"), _LIMITS)
    if (result.verdict, result.stdout) != (Verdict.OK, b"trouped\n"):
        raise SandboxUnavailable(f"self-test: a harmless program ended as {result.verdict}: {result.errors}")


@contextmanager
def _trap() -> Iterator[Trap]:
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="troupe-") as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        os.chmod(folder, 0o755)  # file permissions alone would allow access
        canary = os.path.join(folder, "canary")
        with open(canary, "w") as file:
            file.write(secret)
        listener.setblocking(False)
        yield Trap(folder, canary, secret, listener)
