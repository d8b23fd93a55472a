"""With a cgroup all memory of a run is bounded, the kernel's included; skipped where this user may not make one."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from troupe.sandbox import Job, Limits, LocalSandbox
from troupe.sandbox.cgroup import find_cgroups

SLACK_MIB = 8
LIMITS = Limits(cpu_s=20, idle_s=1, memory_mib=16)
BUFFERS = """
import os, socket, time
memory = bytearray({mib} << 20)
own = []
try:
    while True:
        own.append(socket.socketpair())
        for end in own[-1]:
            end.setblocking(False)
            try:
                while True: end.send(b"x" * 4096)
            except BlockingIOError: pass
except OSError: pass
print("held", flush=True)
time.sleep(99)
"""
"""Up to 12 MiB of buffers of sockets, which no limit of a process counts."""


@pytest.fixture
def cgroups() -> Iterator[Path]:
    """The folder of the workers' cgroups, in which none remains."""
    folder = find_cgroups()
    if folder is None:
        pytest.skip("no cgroup of version 2 with memory is delegated to this user")
    yield folder
    assert not list(folder.glob("troupe-sandbox-*"))


async def test_memory_of_the_kernel_counts(cgroups: Path) -> None:
    async with LocalSandbox(1) as sandbox:
        assert "cgroup" in sandbox.describe()["layers"]
        [folder] = cgroups.glob("troupe-sandbox-*")
        fits = await sandbox.run(Job(BUFFERS.format(mib=2)), LIMITS)
        assert (fits.verdict, fits.text, fits.detail) == ("timeout", "held\n", "it was idle for 1 s")
        bursts = await sandbox.run(Job(BUFFERS.format(mib=14)), LIMITS)
        assert (bursts.verdict, bursts.text, sandbox.restarts) == ("memory", "", 0)
        assert "with the kernel's for it" in bursts.detail
        whole, allowed = (int((folder / f"memory.{name}").read_text()) for name in ("peak", "max"))
        assert whole <= allowed
        assert (await sandbox.run(Job("print(1)"))).text == "1\n", "the worker is not the one that the kernel kills"


async def test_a_limit_is_the_runs_own(cgroups: Path) -> None:
    """A later run with a larger limit gets it."""
    async with LocalSandbox(1) as sandbox:
        for mib in (16, 64):
            source = f"x = bytearray({mib - 1} << 20)\nprint(1)"
            assert (await sandbox.run(Job(source), Limits(memory_mib=mib))).text == "1\n"


async def test_what_a_killed_trainer_has_left_is_removed(cgroups: Path) -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    (cgroups / f"troupe-sandbox-{gone.pid}-0").mkdir()
    (cgroups / f"troupe-sandbox-{os.getpid()}-of-another-sandbox").mkdir()
    assert find_cgroups() == cgroups
    [left] = cgroups.glob("troupe-sandbox-*")
    assert left.name.endswith("of-another-sandbox")
    left.rmdir()
