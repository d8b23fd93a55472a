"""Idle is who neither computes nor waits for a core, in whichever of his threads."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from troupe.sandbox import Job, Limits, LocalSandbox
from troupe.sandbox.guest.activity import Activity

THREADED = """
import threading, time
def main():
    while time.process_time() < before + 0.3: pass
    print(42)
before = time.process_time()
thread = threading.Thread(target=main)
thread.start()
thread.join()
"""
"""As many programs are written, to have a larger stack: the first thread only waits."""


@pytest.fixture
def crowd() -> Iterator[int]:
    """A core on which others compute all the time."""
    core = min(os.sched_getaffinity(0))
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    for other in others:
        os.sched_setaffinity(other.pid, {core})
    yield core
    for other in others:
        other.kill()
        other.wait()


async def test_waiting_for_a_core_is_not_idleness_in_any_thread(crowd: int) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {crowd})  # workers that are started here stay here
    try:
        async with LocalSandbox(1) as sandbox:
            result = await sandbox.run(Job(THREADED), Limits(cpu_s=1.0, idle_s=0.2))
    finally:
        os.sched_setaffinity(0, cores)
    assert (result.verdict, result.text) == ("ok", "42\n"), result
    assert result.wall_s - result.cpu_s > 0.2, "the core was not crowded, so nothing is shown"


def test_who_sleeps_is_idle_and_who_computes_is_not() -> None:
    """The worker is watched until it has computed for 0.2 s, however long that takes on a busy machine."""
    ready = "import time; print('ready', flush=True); "
    sleeper, worker = (
        subprocess.Popen([sys.executable, "-c", ready + code], stdout=subprocess.PIPE)
        for code in ("time.sleep(1000)", "\nwhile True: pass")
    )
    try:
        for process in (sleeper, worker):
            assert process.stdout is not None and process.stdout.readline()
        sleeping, working = Activity(sleeper.pid), Activity(worker.pid)
        while _grown(sleeping):  # it has not gone to sleep yet
            pass
        _grown(working)
        before, began = (sleeping.seconds, working.seconds), time.monotonic()
        while working.seconds - before[1] < 0.2:
            assert time.monotonic() - began < 60
            _grown(working)
        elapsed = time.monotonic() - began
        _grown(sleeping)
        assert sleeping.seconds - before[0] < 0.02 and not sleeping.waits
        assert working.seconds - before[1] < elapsed + 0.05 and working.waits, (
            "nobody is busy for longer than the clock"
        )
    finally:
        for process in (sleeper, worker):
            process.kill()
            process.communicate()
    counted = working.seconds
    working.look(3.0)
    assert (working.seconds, working.waits) == (counted + 3.0, False), "of who has ended, the CPU time alone counts"


def _grown(activity: Activity) -> bool:
    """Look again; whether the process was active since the last look, 20 ms ago."""
    seconds = activity.seconds
    time.sleep(0.02)
    activity.look(0.0)
    return activity.seconds > seconds
