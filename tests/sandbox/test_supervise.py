"""Idle is who neither computes nor waits for a core, in whichever of his threads."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from troupe.sandbox import Job, Limits, LocalSandbox
from troupe.sandbox.guest.supervise import Activity, supervise
from troupe.sandbox.guest.wire import Cause, RunRequest

from ..processes import asleep

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
    # Each in a session of its own, as the sandbox's worker: Linux shares a core out among sessions first.
    loop = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(loop, start_new_session=True) for _ in range(6)]
    for other in others:
        os.sched_setaffinity(other.pid, {core})
    yield core
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.slow
async def test_waiting_for_a_core_is_not_idleness_in_any_thread(crowd: int) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {crowd})  # workers that are started here stay here
    try:
        async with LocalSandbox(1) as sandbox:
            waited_s = 0.0
            while waited_s <= 0.2:  # until the core was so crowded that it shows something
                result = await sandbox.run(Job(THREADED), Limits(cpu_s=1.0, idle_s=0.2))
                assert (result.verdict, result.text) == ("ok", "42\n"), result
                waited_s = result.wall_s - result.cpu_s
    finally:
        os.sched_setaffinity(0, cores)


SUSPENDED = """
import ctypes
libc, stack = ctypes.CDLL(None), ctypes.create_string_buffer(1 << 16)
print("ready", flush=True)
libc.clone(libc.pause, ctypes.c_void_p((ctypes.addressof(stack) + (1 << 16)) & ~15), 0x4000 | 0x100 | 17, None)
"""
"""Its child shares its memory and never ends, so that it waits in the kernel as if for a disk (state D)."""


def test_who_waits_for_the_disk_is_idle_in_the_end() -> None:
    process = subprocess.Popen([sys.executable, "-c", SUSPENDED], stdout=subprocess.PIPE, start_new_session=True)
    ours, theirs = socket.socketpair()
    with process, ours, theirs:
        assert process.stdout is not None and process.stdout.readline()
        activity = Activity(process.pid)
        while activity.excess_s != 1.0:  # of who waits for the disk
            activity.look(0.0)
        request = RunRequest(1, cpu_s=0.1, idle_s=0.1, backstop_s=30, memory=1 << 26, threads=64)
        end = supervise(process.pid, request, theirs, begin=time.monotonic(), tables=0, gate=None)
        assert end.cause is Cause.IDLE, "no program decides whether it is the sandbox that failed"
        assert process.wait() == -signal.SIGKILL


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
        assert sleeping.seconds - before[0] < 0.02 and not sleeping.excess_s
        assert working.seconds - before[1] < elapsed + 0.05 and working.excess_s, (
            "nobody is busy for longer than the clock"
        )
    finally:
        for process in (sleeper, worker):
            process.kill()
            process.communicate()
    counted = working.seconds
    working.look(3.0)
    assert (working.seconds, working.excess_s) == (counted + 3.0, 0.0), "of who has ended, the CPU time alone counts"


IN_STEP = """
import os, time
os.set_blocking(0, False)
while True:
    try: os.read(0, 1)  # it is told to rest
    except BlockingIOError: continue
    os.set_blocking(0, True)
    os.read(0, 1)
    os.set_blocking(0, False)
"""


def test_who_computes_whenever_it_is_looked_at_is_idle_in_between() -> None:
    """A program may guess when the worker looks, and be ready to run just then."""
    process = subprocess.Popen([sys.executable, "-c", IN_STEP], stdin=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    with process.stdin:
        activity, began = Activity(process.pid), time.monotonic()
        try:
            for _ in range(12):
                process.stdin.write(b"r")
                while not asleep(process.pid):
                    assert process.poll() is None
                time.sleep(0.03)
                process.stdin.write(b"c")
                while asleep(process.pid):
                    pass
                activity.look(0.0)
            idle_s = time.monotonic() - began - activity.seconds
        finally:
            process.kill()
            process.wait()
    assert idle_s > 0.1 + activity.excess_s, "whoever may idle for 0.1 s ends here"


def test_threads_that_wait_for_each_other_are_not_busy_for_longer_than_the_clock() -> None:
    crunch = "import hashlib, threading\nfor _ in range(8): threading.Thread(target=hashlib.pbkdf2_hmac, "
    process = subprocess.Popen([sys.executable, "-c", crunch + "args=('sha256', b'', b'', 10 ** 9)).start()"])
    try:
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        while len(os.listdir(f"/proc/{process.pid}/task")) < 9:
            assert process.poll() is None
        activity, began = Activity(process.pid), time.monotonic()
        activity.look(0.0)
        before = activity.seconds
        for _ in range(60):
            time.sleep(0.005)
            activity.look(0.0)
        assert activity.seconds - before < 1.5 * (time.monotonic() - began)
    finally:
        process.kill()
        process.wait()


def _grown(activity: Activity) -> bool:
    """Look again; whether the process was active since the last look, 20 ms ago."""
    seconds = activity.seconds
    time.sleep(0.02)
    activity.look(0.0)
    return activity.seconds > seconds
