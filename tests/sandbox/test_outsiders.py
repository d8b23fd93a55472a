"""Attacks by somebody who wrote neither the sandbox nor its mends: instructions, advice to the kernel, byte by byte."""

import platform

import pytest

from troupe.sandbox import Job, Limits, LocalSandbox, Result, Verdict

from .conftest import assert_bounded, bounded_memory

pytestmark = pytest.mark.sandbox

LIBC = "import ctypes, errno, mmap, os, threading, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"
CODE = (
    LIBC + "code = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)\n"
    "def machine(text):\n    code.seek(0); code.write(bytes.fromhex(text))\n"
    "    return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))\n"
)
MAPPED = (
    LIBC + "libc.mmap.restype = ctypes.c_void_p\n"
    "libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]\n"
    "libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]\n"
    "libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]\n"
    "libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]\n"
    "libc.mremap.restype = ctypes.c_void_p\n"
)
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code and numbers of x86_64")

ENDLESS = {
    "locks across two lines of the cache": CODE + "machine('488d0579000000f0ff4005ebfa' + '90' * 200)()",
    "a trap after each instruction": (
        CODE + "import signal\nsignal.signal(signal.SIGTRAP, lambda *a: None)\nmachine('9c48810c24000100009debfe')()"
    ),
    "another interpreter in it": "import _xxsubinterpreters as s\ns.run_string(s.create(), 'while True: pass')",
    "another interpreter in a thread that nobody waits for": (
        "import _xxsubinterpreters as s, threading\n"
        "sleep = (s.create(), 'import time\\ntime.sleep(99)')\n"
        "threading.Thread(target=s.run_string, args=sleep, daemon=True).start()\n"
        "threading.Event().wait()"
    ),
    "its first thread ended, another asleep": (
        LIBC + "threading.Thread(target=time.sleep, args=(99,)).start()\nlibc.syscall(60, 0)"
    ),
    "each thread starts the next and ends": (
        "import threading, time\ndef g():\n    time.sleep(0.004)\n    threading.Thread(target=g).start()\ng()\n"
        "threading.Event().wait()"
    ),
    "many threads that fight for the table of mappings": (
        LIBC + "def g():\n    while True:\n        m = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "        m[::4096] = bytes(256)\n        m.close()\nthreading.stack_size(32768)\n"
        "for _ in range(40): threading.Thread(target=g).start()"
    ),
    "pages given back and taken again": (
        "import mmap\nm = mmap.mmap(-1, 1 << 26, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "while True:\n    m[::4096] = bytes(1 << 14)\n    m.madvise(mmap.MADV_DONTNEED)"
    ),
    "a wait for two locks that wait for each other": (
        LIBC + "a, b = ctypes.c_int(0), ctypes.c_int(0)\n"
        "threading.Thread(target=lambda: libc.syscall(202, ctypes.byref(b), 0, 0, None, 0, 0)).start()\n"
        "libc.syscall(202, ctypes.byref(a), 11, 0, None, ctypes.byref(b), 0)\n"
        "libc.syscall(202, ctypes.byref(a), 0, 0, None, 0, 0)"
    ),
    "a ring of robust locks at its end": (
        LIBC + "ring = (ctypes.c_long * 3)()\nring[0] = ctypes.addressof(ring)\n"
        "libc.syscall(273, ring, 24)\nwhile True: threading.Thread(target=lambda: libc.syscall(273, ring, 24)).start()"
    ),
    "signals on a stack that is too small": (
        "import ctypes, signal\nclass S(ctypes.Structure): _fields_ = [('p', ctypes.c_void_p), ('f', ctypes.c_int), "
        "('n', ctypes.c_size_t)]\nb = ctypes.create_string_buffer(16384)\n"
        "ctypes.CDLL(None).sigaltstack(ctypes.byref(S(ctypes.addressof(b), 0, 16384)), None)\n"
        "signal.signal(signal.SIGPROF, lambda *a: None)\nsignal.setitimer(signal.ITIMER_PROF, 1e-5, 1e-5)\n"
        "while True: pass"
    ),
    "sockets opened and closed without a pause": (
        "import socket\nwhile True:\n    for end in socket.socketpair(): end.close()"
    ),
    "no other thread may run": (
        "import sys, threading\nsys.setswitchinterval(1e6)\nthreading.Thread(target=print).start()\nwhile True: pass"
    ),
    "descriptors that wake each other": (
        "import os, select\nr, w = os.pipe()\ne = select.epoll()\ne.register(r, select.EPOLLIN)\nos.write(w, b'x')\n"
        "while True: e.poll(0.001)"
    ),
    "random bytes without end": "import os\nwhile True: os.getrandom(1 << 25)",
    "packets of a byte on both outputs": (
        "import fcntl, os\nfor fd in (1, 2): fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)\n"
        "while True:\n    for fd in (1, 2): os.write(fd, b'x')"
    ),
    "two thousand looks a second": (
        "import time\nend = time.monotonic() + 99\nwhile time.monotonic() < end:\n    time.sleep(0.0005)\n"
        "    sum(range(99))"
    ),
    "names of paths that go in circles": (
        "import os\npath = '/proc/self/root' * 250\nwhile True: os.path.exists(path)"
    ),
}

HELD = {
    "pages that the kernel fills in at once": (
        MAPPED + "while libc.mmap(None, 1 << 24, 3, 0x8022, -1, 0) not in (None, 2 ** 64 - 1): pass\n"
    ),
    "huge pages by a call for one range": (
        MAPPED + "kept = []\nfor i in range(40):\n    p = libc.mmap(None, 1 << 22, 3, 0x22, -1, 0)\n"
        "    if p in (None, 2 ** 64 - 1): break\n    q = (p + (1 << 21) - 1) & ~((1 << 21) - 1)\n"
        "    ctypes.memset(q, 1, 1 << 21)\n    libc.madvise(q, 1 << 21, 25)\n"
        "    libc.munmap(q + 4096, (1 << 21) - 4096)\n    libc.munmap(p, q - p)\n"
    ),
    "mappings that are moved and stay": (
        MAPPED + "p = libc.mmap(None, 1 << 24, 3, 0x22, -1, 0)\nctypes.memset(p, 1, 1 << 24)\n"
        "while p not in (None, 2 ** 64 - 1):\n    p = libc.mremap(p, 1 << 24, 1 << 24, 1 | 4)\n"
        "    if p not in (None, 2 ** 64 - 1): ctypes.memset(p, 1, 1 << 24)\n"
    ),
    "memory that the kernel may drop": (
        MAPPED + "while True:\n    p = libc.mmap(None, 1 << 24, 3, 0x28, -1, 0)\n"
        "    if p in (None, 2 ** 64 - 1): break\n    ctypes.memset(p, 1, 1 << 24)\n"
    ),
    "pages freed later": (
        MAPPED + "for i in range(30):\n    p = libc.mmap(None, 1 << 25, 3, 0x22, -1, 0)\n"
        "    if p in (None, 2 ** 64 - 1): break\n    ctypes.memset(p, 1, 1 << 25)\n    libc.madvise(p, 1 << 25, 8)\n"
    ),
    "names for forty thousand mappings": (
        MAPPED + "p = libc.mmap(None, 1 << 25, 0, 0x4022, -1, 0)\n"
        "libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]\n"
        "for i in range(0, 1 << 25, 8192):\n    libc.mprotect(p + i, 4096, 1)\n"
        "    libc.prctl(0x53564d41, 0, ctypes.c_long(p + i), 4096, b'%070d' % i)\n"
    ),
    "guards without mappings": (
        MAPPED + "p = libc.mmap(None, 1 << 25, 3, 0x4022, -1, 0)\nlibc.madvise(p, 1 << 25, 102)\n"
    ),
    "stacks that grow downwards": (
        MAPPED + "for i in range(60):\n    p = libc.mmap(0x200000000000 + (i << 28), 4096, 3, 0x122, -1, 0)\n"
        "    if p in (None, 2 ** 64 - 1): break\n"
        "    for j in range(1, 2000): ctypes.memset(p, 1, 1)\n"
    ),
    "all threads start threads at once": (
        "import threading, time\nthreading.stack_size(32768)\ndef g():\n    while True:\n"
        "        try: threading.Thread(target=g).start()\n        except RuntimeError: time.sleep(0.001)\n"
        "        if time.monotonic() > end: return\nend = time.monotonic() + 0.1\ng()\n"
    ),
    "a megabyte of input, mapped sixty times": (
        "import mmap, os\nmaps = [mmap.mmap(0, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) for _ in range(60)]\n"
    ),
    "writers that fill pipes with pages of their own": (
        "import os\npipes = []\ntry:\n    while True: pipes.append(os.pipe2(os.O_NONBLOCK))\nexcept OSError: pass\n"
        "for _, w in pipes:\n    try:\n        while True: os.writev(w, [b'x' * 4096] * 16)\n    except OSError: pass\n"
    ),
}

FLAGS = {
    "pages that the administrator has set aside": 0x40022,
    "the same, of a gigabyte each": 0x40022 | 30 << 26,
    "the same, in shared memory": 0x40021,
}
ADVICE = {
    "pages that the kernel compares with those of others": 12,
    "pages that are written to the swap": 21,
    "pages that are the first to go": 20,
    "a hole in a file": 9,
    "a page that counts as broken": 100,
    "pages moved out of use": 101,
    "pages that a child would share": 11,
    "a call's flags above those that are looked at": "ctypes.c_long(12 | 1 << 32)",
}

FORBIDDEN = {
    "a process by the helper of subprocess": (
        "import os\nimport _posixsubprocess as p\nr, w = os.pipe()\n"
        "p.fork_exec([b'/bin/true'], [b'/bin/true'], True, (w,), None, None, -1, -1, -1, -1, -1, -1, r, w, True, "
        "False, -1, None, None, None, -1, None, True)"
    ),
    "a process by posix_spawn": "import os\nos.posix_spawn('/bin/true', ['true'], {})",
    "the descriptor of its own process, signalled": (
        LIBC + "import socket, struct\na, b = socket.socketpair()\n"
        "try: fd = struct.unpack('i', a.getsockopt(1, 77, 4))[0]\nexcept OSError: fd = 0\n"
        "libc.syscall(424, fd, 9, None, 0)"
    ),
}

QUIET = {
    "an exception whose cause is itself": (
        "class E(Exception):\n    @property\n    def __cause__(self): return E()\n    __context__ = __cause__\n"
        "import sys\ndef hook(*a):\n    while True: sys.__excepthook__(E, E(), None)\nsys.excepthook = hook\nraise E"
    ),
    "a hook of exceptions that never returns": "import sys, time\nsys.excepthook = lambda *a: time.sleep(99)\n1 / 0",
    "a terminal's process": "import pty\npty.fork()",
    "the old page of system calls": CODE + "print(machine('48c7c00004' + '60ff' + 'ffd0c3')())",
    "its frame of a signal, made up": CODE + "machine('b80f0000000f05c3')()",
    "a wait begun anew that never was": LIBC + "print(libc.syscall(219) < 0)",
    "the end of the interpreter, twice": LIBC + "ctypes.pythonapi.Py_FinalizeEx()\nctypes.pythonapi.Py_FinalizeEx()",
    "a stack that is no stack": CODE + "machine('48c7c40000000058c3')()",
    "its own code, overwritten": MAPPED + "libc.munmap(id(None) & ~4095, 1 << 22)\nprint(4242 - 1)",
    "an alarm": "import signal, time\nsignal.alarm(1)\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(99)",
    "packets on its output": (
        "import fcntl, os\nfcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT | os.O_NONBLOCK)\n"
        "for i in range(100):\n    try: os.write(1, b'4')\n    except OSError: pass"
    ),
    "output by two numbers at once": ("import os\nos.dup2(1, 2)\nos.write(2, b'42')\nos.write(1, b'4')\nos.dup2(0, 1)"),
    "a value from a thread after its end": (
        "import os, threading\ndef f(n):\n    threading.Timer(0.02, os.write, (3, b'4242')).start()\n    return 1"
    ),
    "minus signs without end": "x = " + "-" * 100_000 + "1",
    "decorators without end": "@print\n" * 5_000 + "def g(): pass",
    "brackets of formats": "x = f'" + "{1:" * 50 + "}" * 50 + "'",
    "a coding that reads otherwise": "# -*- coding: rot13 -*-\ncevag(4242)",
    "a number of a million digits in its source": "x = " + "9" * 1_000_000,
}


@pytest.mark.parametrize("name", ENDLESS)
@x86
async def test_time(attack, name: str) -> None:
    await attack(ENDLESS[name], "timeout", *(["crash"] if "robust" in name or "interpreter" in name else []))


@pytest.mark.parametrize("name", HELD)
@x86
async def test_memory(attack, name: str) -> None:
    """It waits with what it holds."""
    waits = HELD[name] + "\nprint('held', flush=True)\nimport time\ntime.sleep(99)"
    await attack(waits, "timeout", "memory", "crash", memory_mib=64, cpu_s=2)


@pytest.mark.parametrize("name", FLAGS)
@x86
async def test_mappings_that_are_refused(attack, name: str) -> None:
    source = f"p = libc.mmap(None, 1 << 30, 3, {FLAGS[name]}, -1, 0)\nprint(p == 2 ** 64 - 1, ctypes.get_errno())"
    assert (await attack(MAPPED + source, "ok")).text == "True 1\n"


@pytest.mark.parametrize("name", ADVICE)
@x86
async def test_advice_that_the_kernel_does_not_get(attack, name: str) -> None:
    source = "p = libc.mmap(None, 8192, 3, 0x22, -1, 0)\nlibc.madvise.argtypes = None\n"
    source += f"print(libc.madvise(ctypes.c_void_p(p), 8192, {ADVICE[name]}), ctypes.get_errno())"
    assert (await attack(MAPPED + source, "ok")).text == "-1 38\n"


@pytest.mark.parametrize("name", FORBIDDEN)
@x86
async def test_killed_by_the_kernel(attack, name: str) -> None:
    await attack(FORBIDDEN[name], "forbidden")


@pytest.mark.parametrize("name", QUIET)
@x86
async def test_it_ends_and_does_not_pass(attack, name: str) -> None:
    await attack(QUIET[name], "ok", "crash", "memory", "timeout")


async def test_the_bounds_are_seen(sandbox: LocalSandbox) -> None:
    """A run of 100 MiB within twice 16; and one that holds its worker too long."""
    if not sandbox._idle or "cgroup" in sandbox.describe()["layers"]:
        pytest.skip("its memory is bounded by its own cgroup")
    greedy = Job("x = bytearray(100 << 20)\nprint(len(x))")
    with (
        pytest.raises(AssertionError, match="more than twice 16 MiB"),
        bounded_memory(sandbox, Limits(memory_mib=16)),
    ):
        await sandbox.run(greedy)
    with pytest.raises(AssertionError):
        assert_bounded(Result(Verdict.OK, wall_s=6.1, waited_s=1.0), Limits(cpu_s=2, idle_s=2))
    with pytest.raises(AssertionError):
        assert_bounded(Result(Verdict.OK, peak_bytes=33 << 20), Limits(memory_mib=16))
    assert_bounded(Result(Verdict.OK, wall_s=6.1, waited_s=1.2), Limits(cpu_s=2, idle_s=2))
