"""Programs that try to use up time, memory, output, threads or descriptors."""

import asyncio
from pathlib import Path

import pytest

from troupe.sandbox import Call, Job, Limits, LocalSandbox

from ..processes import below, fork_server, until

pytestmark = pytest.mark.sandbox

SLOW = {
    "busy loop": "while True: pass",
    "sleep": "import time\ntime.sleep(1000)",
    "sleep in slices": "import time\nwhile True: time.sleep(0.01)",
    "wait for a lock": "import threading\nthreading.Event().wait()",
    "wait for a signal": "import signal\nsignal.pause()",
    "read a pipe of its own": "import os\nr, w = os.pipe()\nos.read(r, 1)",
    "all signals ignored": (
        "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\nwhile True: pass"
    ),
    "catches everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "backtracking": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "huge integer to text": "import sys\nsys.set_int_max_str_digits(0)\nstr(7 ** 4_000_000)",
    "in a thread": "import threading\nthreading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()",
    "at exit": "import atexit\n@atexit.register\ndef g():\n    while True: pass",
    "while compiling": "x = " + " + ".join(["1"] * 200_000),
    "in a finaliser": "class A:\n    def __del__(self):\n        while True: pass\nA()",
    "its first thread ended": (
        "import ctypes, threading\nthreading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)"
    ),
    "spin and sleep": (
        "import time\nwhile True:\n    end = time.perf_counter() + 0.0008\n    while time.perf_counter() < end: pass\n"
        "    time.sleep(0.0002)"
    ),
    "a lock that inherits priority": (
        "import ctypes\nx = ctypes.c_int(1)\nctypes.CDLL(None).syscall(202, ctypes.byref(x), 0, 1, None, 0, 0)"
    ),
    "a storm of signals": (
        "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)\nwhile True: signal.pause()"
    ),
    "signals while threads start": (
        "import signal, threading, time\nsignal.signal(signal.SIGALRM, lambda *a: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)\nthreading.stack_size(32768)\nwhile True:\n"
        "    try: threading.Thread(target=time.sleep, args=(9,)).start()\n    except RuntimeError: pass"
    ),
    "one thread after the other": (
        "import threading\nwhile True:\n    t = threading.Thread(target=int); t.start(); t.join()"
    ),
    "all descriptors closed": "import os, time\nos.closerange(0, 1 << 16)\ntime.sleep(99)",
    "a flood into a pipe of its own": (
        "import os\nr, w = os.pipe()\nos.dup2(w, 1)\nwhile True: os.write(1, b'x' * 4096)"
    ),
    "watchers that watch each other": (
        "import select\nes = [select.epoll() for _ in range(50)]\nfor a in es:\n    for b in es:\n"
        "        try: a.register(b.fileno())\n        except OSError: pass\nwhile True:\n    for a in es: a.poll(0)"
    ),
    "a thread that outlives it": "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()",
}

BIG = {
    "list": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "zip bomb": "import zlib\nzlib.decompress(zlib.compress(bytes(1 << 26)) ) * 8",
    "big text": "'x' * (1 << 30)",
    "big range": "list(range(1 << 28))",
    "compile": "compile('x = ' + '[' * 50 + '1,' * 20_000_000 + ']' * 50, '', 'exec')",
    "traceback of a huge message": "raise ValueError('x' * 60_000_000)",
    "uncaught in f": "def f(n): return [0] * (1 << 28)",
}

DEEP = {
    "recursion without limit": "import sys\nsys.setrecursionlimit(1 << 30)\ndef g(): g()\ng()",
    "recursion": "def g(): g()\ng()",
    "nested list": "x = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)",
    "nested brackets": "eval('(' * 10 ** 5 + ')' * 10 ** 5)",
    "power tower": "9 ** 9 ** 9",
    "threads": "import threading, time\nfor _ in range(10_000): threading.Thread(target=time.sleep, args=(9,)).start()",
}

FLOOD = {
    "stdout": "while True: print('x' * 1000)",
    "stdout at once": "print('x' * (1 << 17))",
    "stdout in two parts": "import os\nos.write(1, b'x' * 40_000)\nos.write(1, b'x' * 40_000)\nos._exit(1)",
    "stderr": "import sys\nwhile True: sys.stderr.write('x' * 1000)",
    "ignoring errors": (
        "import os\nwhile True:\n    for fd in (1, 2):\n"
        "        try: os.write(fd, b'x' * 1000)\n        except OSError: pass"
    ),
    "value": "def f(n): return 'x' * (1 << 17)",
    "the value's descriptor": "import os\ndef f(n):\n    while True: os.write(3, b'x' * 1000)",
    "before the value": "import os\nos.write(3, b'4242' * 20_000)\ndef f(n): return 1",
}

HELD = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for i in range(1 << 16):
    page = libc.mmap(0x100000000000 + (i << 30), 4096, 3, 0x100022, -1, 0)
    ctypes.memset(page, 1, 1)
"""
"""Each page far from the others takes two pages of tables, which no limit of a process counts."""

CRASH = {
    "descriptors": "import os\nx = [os.dup(0) for _ in range(1000)]",
    "epoll": "import select\nx = [select.epoll() for _ in range(1000)]",
    "mapped memory": "import mmap\nx = [mmap.mmap(-1, 1 << 26, mmap.MAP_PRIVATE) for _ in range(1000)]",
    "locked memory": "import ctypes\nassert ctypes.CDLL(None).mlockall(3) == 0",
    "a big file": "open('/tmp/x', 'wb').truncate(1 << 30)",
    "segmentation fault": "import ctypes\nctypes.string_at(0)",
    "abort": "import os\nos.abort()",
    "memory of None": "import ctypes\nctypes.memset(id(None), 0xff, 64)\nprint(None)",
    "illegal instruction": "import ctypes\nctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.create_string_buffer(9)))()",
    "null byte": "print(1)\0",
    "lone surrogate": "x = '\ud800'",
    "no program at all": "def f(n: return",
    "a value that contains itself": "def f(n):\n    x = []\n    x.append(x)\n    return x",
    "no such function": "g = 'def f('",
}


@pytest.mark.parametrize("name", SLOW)
async def test_time(attack, name: str) -> None:
    if name == "while compiling":
        await attack(SLOW[name], "timeout", "memory", "crash")  # which one depends on the version of Python
    else:
        await attack(SLOW[name], "timeout")


@pytest.mark.parametrize("name", BIG)
async def test_memory(attack, name: str) -> None:
    await attack(BIG[name], "memory", cpu_s=3)


@pytest.mark.parametrize("name", DEEP)
async def test_depth(attack, name: str) -> None:
    await attack(DEEP[name], "memory", "timeout", "crash")


@pytest.mark.parametrize("name", FLOOD)
async def test_output(attack, name: str) -> None:
    result = await attack(FLOOD[name], "output_limit")
    assert len(result.stdout) <= 1 << 16
    assert len(result.stderr) <= 1 << 16


@pytest.mark.parametrize("name", CRASH)
async def test_crash(attack, name: str) -> None:
    await attack(CRASH[name], "crash")


async def test_page_tables(attack) -> None:
    result = await attack(HELD, "memory", cpu_s=5)
    assert "page tables" in result.detail


@pytest.mark.parametrize("allowed", [8, 64])
async def test_as_many_threads_as_are_allowed(attack, allowed: int) -> None:
    count = (
        "import os, threading\nthreading.stack_size(32768)\nn, end = 1, threading.Event()\ntry:\n    while True:\n"
        "        threading.Thread(target=end.wait).start()\n        n += 1\nexcept RuntimeError: print(n, flush=True)\n"
    )
    assert (await attack(count + "os._exit(0)", "ok", threads=allowed)).text == f"{allowed}\n"
    result = await attack(count + "os._exit(1)", "crash", threads=allowed)
    assert result.detail == f"exit status 1, after it asked for more than {allowed} threads"


async def test_threads_that_have_ended_do_not_count(attack) -> None:
    source = "import threading\nfor _ in range(300):\n    t = threading.Thread(target=int); t.start(); t.join()"
    # The waits for a core of threads that have ended count as idle time: on a busy machine they add up.
    assert (await attack(source, "ok", cpu_s=5, idle_s=5)).detail == ""


async def test_no_huge_pages_in_a_program(sandbox: LocalSandbox) -> None:
    """Of a huge page all stays as long as a part is mapped, and only the part counts as address space."""
    run = asyncio.create_task(sandbox.run(Job("import time\ntime.sleep(99)"), Limits(idle_s=500)))

    def programs() -> set[int]:
        """Below the fork server; both are interpreters of one command line."""
        inner = [below(pid) for worker in sandbox._busy for pid in {worker.pid} | below(worker.pid) if fork_server(pid)]
        return set().union(*inner)

    await until(programs)
    assert all("THP_enabled:\t0" in Path(f"/proc/{pid}/status").read_text() for pid in programs())
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


async def test_a_caught_memory_error_is_the_programs_own_affair(attack) -> None:
    await attack("try: x = 'x' * (1 << 30)\nexcept MemoryError: print('fine')", "ok")


async def test_much_on_stderr_is_cut_not_punished(sandbox: LocalSandbox) -> None:
    result = await sandbox.run(Job("import sys\nsys.stderr.write('x' * 100_000)\nprint(1)"))
    assert (result.verdict, len(result.stderr), result.stderr_truncated) == ("ok", 1 << 16, True)


async def test_cpu_time_counts_threads_together(sandbox: LocalSandbox) -> None:
    source = "import hashlib, threading\nfor _ in range(2): threading.Thread(target=hashlib.pbkdf2_hmac, "
    result = await sandbox.run(Job(source + "args=('sha256', b'', b'', 10 ** 8)).start()"), Limits(cpu_s=1.0))
    assert result.verdict == "timeout"
    assert 1.0 <= result.cpu_s < 2.0, "2.0 is what two threads use where each may use 1.0"


async def test_big_input_and_arguments_arrive(sandbox: LocalSandbox) -> None:
    text = "é" * 500_000
    read = await sandbox.run(Job("import sys\nprint(len(sys.stdin.read()))", stdin=text))
    called = await sandbox.run(Job("def f(x): return len(x)", entry=Call("f", [text])))
    assert (read.stdout, called.value) == (b"500000\n", 500_000)
