"""How programs, workers and pools end, whoever ends them: nothing goes on, and nobody waits in vain."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from troupe.sandbox import Job, Limits, LocalSandbox, SandboxUnavailable, run_all

from ..processes import alive, below, command, fork_server, until

SLEEP = Job("import time\ntime.sleep(1000)")
FINE = Job("print(1)")
PATIENT = Limits(idle_s=500)

TRAINER = """
import asyncio, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore, and all below them
from troupe.sandbox import Job, Limits, LocalSandbox
async def main():
    async with LocalSandbox(1, isolation={isolation!r}) as sandbox:
        print("the self-test is over", flush=True)
        await sandbox.run(Job("import time\\ntime.sleep(1000)"), Limits(idle_s=500))
asyncio.run(main())
"""


def assert_they_end(pids: set[int]) -> None:
    deadline = time.monotonic() + 60
    while any(map(alive, pids)):
        assert time.monotonic() < deadline, f"still there: {[command(pid) for pid in pids if alive(pid)]}"
        time.sleep(0.02)


def server_below(root: int) -> int:
    """The fork server, below bubblewrap where there is one, while a program runs in it; else 0."""
    for pid in {root} | below(root):
        if fork_server(pid) and below(pid):
            return pid
    return 0


def server_of(sandbox: LocalSandbox) -> int:
    """See :func:`server_below`."""
    return next(filter(None, (server_below(worker.pid) for worker in sandbox._busy)), 0)


async def test_a_program_ends_with_a_run_that_is_cancelled(sandbox: LocalSandbox) -> None:
    run = asyncio.create_task(sandbox.run(SLEEP, PATIENT))
    await until(lambda: server_of(sandbox))
    family = {server_of(sandbox)} | below(server_of(sandbox))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert_they_end(family)


async def test_a_program_ends_with_its_worker(sandbox: LocalSandbox) -> None:
    """The fork server is killed by hand; the run is repeated by another."""
    run = asyncio.create_task(sandbox.run(Job("import time\ntime.sleep(0.7)\nprint(1)"), PATIENT))
    await until(lambda: server_of(sandbox))
    family = {server_of(sandbox)} | below(server_of(sandbox))
    os.kill(server_of(sandbox), signal.SIGKILL)
    assert_they_end(family)
    assert (await run).text == "1\n"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
async def test_programs_end_with_the_trainer(sandbox: LocalSandbox, how: signal.Signals) -> None:
    code = TRAINER.format(isolation=sandbox.describe()["isolation"])
    trainer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert trainer.stdout is not None
    try:
        await asyncio.to_thread(trainer.stdout.readline)
        await until(lambda: server_below(trainer.pid))
        family = below(trainer.pid)
        trainer.send_signal(how)
        assert trainer.wait(60) != 0
        assert_they_end(family)
    finally:
        trainer.kill()
        trainer.wait()
        trainer.stdout.close()


async def test_workers_that_died_idle_are_no_failure_of_a_run(sandbox: LocalSandbox) -> None:
    """As many as a run has attempts, and one more."""
    async with LocalSandbox(4, isolation=sandbox.describe()["isolation"]) as pool:
        await run_all(pool, [Job("import time\ntime.sleep(0.1)")] * 4)
        assert len(pool._idle) == 4
        pids = [worker.pid for worker in pool._idle]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not any(map(alive, pids)))
        assert (await pool.run(FINE)).verdict == "ok"
        assert pool.restarts == 4


async def test_closing_ends_what_is_running_and_what_waits(sandbox: LocalSandbox) -> None:
    pool = LocalSandbox(1, isolation=sandbox.describe()["isolation"])
    runs = [asyncio.create_task(pool.run(SLEEP, PATIENT)) for _ in range(2)]
    await until(lambda: server_of(pool))
    family = {server_of(pool)} | below(server_of(pool))
    async with asyncio.timeout(60):  # the programs would sleep for 1,000 s
        await pool.close()
    for run in runs:
        with pytest.raises(RuntimeError, match="the sandbox is closed"):
            await run
    assert_they_end(family)


async def test_no_room_for_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/self")  # where nobody can make a folder
    with pytest.raises(SandboxUnavailable, match="/proc/self/troupe-"):
        await LocalSandbox(1).start()
