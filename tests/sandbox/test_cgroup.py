"""With a cgroup all memory of a run is bounded, the kernel's included; skipped where this user may not make one."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from troupe.sandbox import Job, Limits, LocalSandbox
from troupe.sandbox.cgroup import find_cgroups

OWN = f"troupe-sandbox-{os.getpid()}-*"
"""The cgroups of this process; other tests have theirs."""
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
    """The folder of the workers' cgroups; a test leaves none there."""
    folder = find_cgroups()
    if folder is None:
        pytest.skip("no cgroup with the controller of memory is delegated to this user")
    before = set(folder.glob(OWN))
    yield folder
    assert set(folder.glob(OWN)) == before


async def test_memory_of_the_kernel_counts(cgroups: Path) -> None:
    before = set(cgroups.glob(OWN))
    async with LocalSandbox(1) as sandbox:
        assert "cgroup" in sandbox.describe()["layers"]
        [folder] = set(cgroups.glob(OWN)) - before
        fits = await sandbox.run(Job(BUFFERS.format(mib=2)), LIMITS)
        assert (fits.verdict, fits.text, fits.detail) == ("timeout", "held\n", "it was idle for 1 s")
        bursts = await sandbox.run(Job(BUFFERS.format(mib=14)), LIMITS)
        assert (bursts.verdict, bursts.text, sandbox.restarts) == ("memory", "", 0)
        assert "with the kernel's for it" in bursts.detail
        files = {True: ("memory.max_usage_in_bytes", "memory.limit_in_bytes"), False: ("memory.peak", "memory.max")}
        names = files[(folder / "memory.limit_in_bytes").exists()]
        whole, allowed = (int((folder / name).read_text()) for name in names)
        assert whole <= allowed
        assert (await sandbox.run(Job("print(1)"))).text == "1\n", "the worker is not the one that the kernel kills"


async def test_the_worker_stays_outside(cgroups: Path) -> None:
    """Else the kernel may kill it while the program is dead already and the kernel's memory for it not yet freed."""
    before = set(cgroups.glob(OWN))
    async with LocalSandbox(1) as sandbox:
        [folder] = set(cgroups.glob(OWN)) - before
        run = asyncio.create_task(sandbox.run(Job("import time\ntime.sleep(99)"), LIMITS))
        inside = set()
        while not run.done():
            inside.add(len((folder / "cgroup.procs").read_text().split()))
            await asyncio.sleep(0.01)
        assert ((await run).verdict, inside) == ("timeout", {0, 1})


async def test_a_limit_is_the_runs_own(cgroups: Path) -> None:
    """A later run with a larger limit gets it."""
    async with LocalSandbox(1) as sandbox:
        for mib in (16, 64):
            source = f"x = bytearray({mib - 1} << 20)\nprint(1)"
            assert (await sandbox.run(Job(source), Limits(memory_mib=mib))).text == "1\n"


async def test_what_a_killed_trainer_has_left_is_removed(cgroups: Path) -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    (left := cgroups / f"troupe-sandbox-{gone.pid}-0").mkdir()
    (other := cgroups / f"troupe-sandbox-{os.getpid()}-of-another-sandbox").mkdir()
    assert find_cgroups() == cgroups
    assert not left.exists() and other.exists()
    other.rmdir()
