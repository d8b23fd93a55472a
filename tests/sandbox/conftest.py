"""A sandbox of each isolation, surroundings that no program may touch, and bounds that none may exceed."""

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import troupe.sandbox.launch
from troupe.sandbox import Call, Job, Limits, LocalSandbox, Result, SandboxUnavailable, Verdict, equal_values
from troupe.sandbox.cgroup import Cgroup, find_cgroups

EXPECTED = 4242
LIMITS = Limits(cpu_s=0.3, idle_s=0.3, memory_mib=128, stdout_bytes=1 << 16, value_bytes=1 << 16)


class Surroundings:
    """A secret in a file and in the environment, a listening port, sockets by name, and a process that must live."""

    def __init__(self, folder: Path) -> None:
        self.secret = secrets.token_hex(16)
        self.folder = folder
        self.canary = folder / "canary"
        self.canary.write_text(self.secret)
        folder.chmod(0o777)
        os.environ["TROUPE_TEST_SECRET"] = self.secret
        self.victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(str(folder / "socket"))
        self.datagrams.setblocking(False)
        self.open_canary = self.canary.open()
        self.files = sorted(os.listdir(folder))

    def fill(self, source: str) -> str:
        """``source`` with the names of what it is to attack."""
        words = {
            "CANARY": repr(str(self.canary)),
            "FOLDER": repr(str(self.folder)),
            "PORT": str(self.listener.getsockname()[1]),
            "VICTIM": str(self.victim.pid),
            "TRAINER": str(os.getpid()),
        }
        for word, value in words.items():
            source = source.replace(word, value)
        return source

    def assert_untouched(self) -> None:
        """Nobody wrote, connected, sent, or killed."""
        assert self.victim.poll() is None
        assert sorted(os.listdir(self.folder)) == self.files
        assert self.canary.read_text() == self.secret
        assert self.canary.stat().st_mode & 0o777 == 0o644
        for receive in (self.listener.accept, lambda: self.datagrams.recv(10)):
            with pytest.raises(BlockingIOError):
                receive()

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        self.open_canary.close()
        self.listener.close()
        self.datagrams.close()
        del os.environ["TROUPE_TEST_SECRET"]


@pytest.fixture(scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    around = Surroundings(tmp_path_factory.mktemp("surroundings"))
    yield around
    around.close()


ISOLATIONS = {"landlock": "landlock", "landlock-cgroup": "landlock", "bubblewrap": "bubblewrap"}
"""The first without a cgroup of its own, so that the limits of a process alone bound it."""


@pytest.fixture(
    scope="session", params=["landlock", pytest.param("landlock-cgroup", marks=pytest.mark.slow), "bubblewrap"]
)
def sandbox(request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    """A sandbox of one worker, for each isolation that this machine has."""
    sandbox = LocalSandbox(1, isolation=ISOLATIONS[request.param], limits=LIMITS)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "landlock":
            patch.setattr(troupe.sandbox.launch, "find_cgroups", lambda: None)
        try:
            asyncio.run(sandbox.start())
        except SandboxUnavailable as error:
            pytest.skip(f"{request.param}: {error}")
    if request.param == "landlock-cgroup" and "cgroup" not in sandbox.describe()["layers"]:
        pytest.skip("no cgroup with the controller of memory is delegated to this user")
    yield sandbox
    with contextlib.suppress(RuntimeError):
        asyncio.run(sandbox.close())


LATE_S = 1.0
"""A worker may be held for so long above a program's limits."""


@contextmanager
def bounded_memory(sandbox: LocalSandbox, limits: Limits) -> Iterator[None]:
    """Demand of the run within that its memory, the kernel's for it included, stays below twice its limit.

    In a cgroup of its own the kernel sees to it that it is the limit and 8 MiB (``test_cgroup.py``).  Without one the
    worker is put into one here, with twice the limit: at that the kernel takes back what it can, such as names of
    files, and then it would kill.
    """
    parent = find_cgroups()
    if parent is None or "cgroup" in sandbox.describe()["layers"] or not sandbox._idle:
        yield
        return
    group, (worker,) = Cgroup(parent), sandbox._idle
    group.limit((limits.memory_mib << 21) - (8 << 20))
    group.processes.write_text(str(worker.pid))
    try:
        yield
        assert not group.killed(), f"more than twice {limits.memory_mib} MiB, with the kernel's memory for it"
    finally:
        if not worker.ended:
            (parent / "cgroup.procs").write_text(str(worker.pid))
        group.remove()


def assert_bounded(result: Result, limits: Limits) -> None:
    """It held its worker for no longer than its limits and :data:`LATE_S`, whatever else this machine does, and its own
    memory was at most its limit, or twice as much where it took the place of what it had inherited.
    """
    held_s = result.wall_s - result.waited_s
    assert held_s <= limits.cpu_s + limits.idle_s + LATE_S, result
    assert result.cpu_s <= limits.cpu_s + LATE_S, result
    assert result.peak_bytes <= limits.memory_mib << 21, result


Attack = Callable[..., Awaitable[Result]]


@pytest.fixture
def attack(sandbox: LocalSandbox, surroundings: Surroundings) -> Attack:
    """``await attack(source, *verdicts)``: run it, demand one of the verdicts, no pass, an untouched world, and that
    time and memory stay within their bounds.

    A source that defines ``f`` is called as ``f(2)`` and would have to give 4242; any other would have to print it.
    """

    async def run(source: str, *verdicts: str, **limits: float) -> Result:
        assert set(verdicts) <= set(Verdict)
        entry = Call("f", [2]) if "def f(" in source else None
        job = Job(surroundings.fill(source), stdin="2\n", entry=entry)
        chosen = Limits(**{**vars(LIMITS), **limits})
        restarts = sandbox.restarts
        with bounded_memory(sandbox, chosen):
            result = await sandbox.run(job, chosen)
        assert result.verdict in verdicts, f"{result.verdict} {result.detail} {result.errors[-2000:]}"
        assert_bounded(result, chosen)
        assert not (result.verdict == "ok" and passes(result, entry is not None))
        assert surroundings.secret.encode() not in result.stdout + result.stderr + repr(result.value).encode()
        surroundings.assert_untouched()
        after = await sandbox.run(Job("print(6 * 7)"), LIMITS)
        assert (after.verdict, after.stdout, sandbox.restarts) == ("ok", b"42\n", restarts)
        return result

    return run


def passes(result: Result, called: bool) -> bool:
    """How a world would judge: outside, by exact types."""
    return equal_values(result.value, EXPECTED) if called else result.stdout.split() == [str(EXPECTED).encode()]
