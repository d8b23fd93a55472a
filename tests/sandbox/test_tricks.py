"""Odd ways: the worker's own modules and frames, descriptors, values that lie, calls that few know."""

import pytest

pytestmark = pytest.mark.sandbox

SYSCALL = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) >= 0:
        raise SystemExit(f"got through: {number}")
    return errno.errorcode[ctypes.get_errno()]
"""

FORBIDDEN = {
    "run what a descriptor holds": (
        "import os\nos.execve(os.open('/usr/lib/x86_64-linux-gnu/libc.so.6', os.O_RDONLY), ['x'], {})"
    ),
    "execveat": SYSCALL + "call(322, 0, b'/bin/true', None, None, 0)",
    "a clone that shares memory but is no thread": SYSCALL + "call(56, 0x100 | 0x4000, 0, 0, 0, 0)",
    "a thread that suspends its parent": SYSCALL + "call(56, 0x3d0f00 | 0x4000, 0, 0, 0, 0)",
    "a thread with descriptors of its own": SYSCALL + "call(56, 0x3d0f00 & ~0x400, 0, 0, 0, 0)",
    "a thread with a working folder of its own": SYSCALL + "call(56, 0x3d0f00 & ~0x200, 0, 0, 0, 0)",
    "a thread that shares the queue of the disk": SYSCALL + "call(56, 0x3d0f00 | 0x80000000, 0, 0, 0, 0)",
    "a thread with flags that no kernel reads": (
        SYSCALL + "call(ctypes.c_long(56), ctypes.c_ulong(0x1003d0f00), ctypes.c_long(0))"
    ),
    "a brother": SYSCALL + "call(56, 0x8000 | 17, 0, 0, 0, 0)",
    "a ring of the older kind": SYSCALL + "call(206, 128, ctypes.byref(ctypes.c_long()))",
    "a socket to the hypervisor": "import socket\nsocket.socket(40, 1, 0)",
    "a socket of packets": "import socket\nsocket.socket(17, 3, 0)",
    "a socket of the kernel's crypto": "import socket\nsocket.socket(38, 5, 0)",
    "look into a thread's parent": SYSCALL + "import os\ncall(438, os.getppid(), 3, 0)",
    "watch faults": SYSCALL + "call(323, 0)",
    "write into others' pages": SYSCALL + "call(440, 0, 0, 0, 21, 0)",
}

REFUSED = {
    "a file in memory": SYSCALL + "assert call(319, b'x', 0) == 'EPERM'\nraise SystemExit(1)",
    "an open folder as a way out": (
        "import os\nfd = os.open('/', os.O_PATH)\nprint(os.read(os.open('etc/passwd', os.O_RDONLY, dir_fd=fd), 99))"
    ),
    "a path descriptor, opened again": (
        "import os\nfd = os.open(CANARY, os.O_PATH)\nprint(open(f'/proc/self/fd/{fd}').read())"
    ),
    "the trainer's folder": "import os\nprint(os.readlink('/proc/TRAINER/cwd'))",
    "the program of its parent": "import os\nprint(os.readlink(f'/proc/{os.getppid()}/exe'))",
    "be killed later than others": "open('/proc/self/oom_score_adj', 'w').write('-1000')",
    "another name space's groups": "open('/proc/self/setgroups', 'w').write('deny')",
    "zeros without end": "open('/dev/zero', 'rb').read(1)",
    "a terminal": "import os\nos.open('/dev/ptmx', os.O_RDWR)",
    "the kernel's log": "open('/dev/kmsg').read()",
    "import what trains it": "import troupe",
    "import what trains it, by path": "import sys\nsys.path[:0] = ['FOLDER', '.']\nimport src.envs",
    "lock a library for itself": "import fcntl, json\nfcntl.flock(open(json.__file__), fcntl.LOCK_EX)",
    "be told when others open a file": "import fcntl, json\nfcntl.fcntl(open(json.__file__), 1024, fcntl.F_RDLCK)",
    "be told what happens in a folder": "import fcntl, os\nfcntl.fcntl(os.open('/', os.O_PATH), 1026, 1)",
    "a pipe larger than its limit": "import fcntl\nfcntl.fcntl(1, 1031, 1 << 20)",
    "lower priority for the disk of others": SYSCALL + "assert call(251, 1, 0, 7) == 'ENOSYS'\nraise SystemExit(1)",
    "a real-time share": SYSCALL + "assert call(314, 0, 0, 0) == 'ENOSYS'\nraise SystemExit(1)",
    "a clock that outlives it": SYSCALL + "assert call(222, 0, 0, 0) == 'ENOSYS'\nraise SystemExit(1)",
    "segments of its own": SYSCALL + "assert call(154, 1, 0, 0) == 'ENOSYS'\nraise SystemExit(1)",
    "descriptors of its own for a thread": (
        SYSCALL + "assert call(436, 3, ctypes.c_uint(0xffffffff), 2) == 'EPERM'\nraise SystemExit(1)"
    ),
    "shared memory that stays as long as one page of it": "import mmap\nmmap.mmap(-1, 1 << 20)",
    "the same, validated": "import mmap\nmmap.mmap(-1, 1 << 20, flags=0x23)",
    "a million locks in the kernel": "import fcntl\nfcntl.lockf(open('/dev/null', 'w'), fcntl.LOCK_EX, 1, 2)",
    "wait for all cores": SYSCALL + "assert call(324, 1, 0, 0) == 'ENOSYS'\nraise SystemExit(1)",
    "huge pages": SYSCALL + "assert call(157, 41, 0, 0, 0, 0) == 'ENOSYS'\nraise SystemExit(1)",
    "an urgent byte": "import socket\nsocket.socketpair()[0].send(b'x', socket.MSG_OOB)",
    "larger buffers": "import socket\nsocket.socketpair()[0].setsockopt(1, 7, 1 << 30)",
    "pages of its own in a pipe": SYSCALL + "assert call(278, 1, None, 0, 0) == 'ENOSYS'\nraise SystemExit(1)",
    "limits of its parent": SYSCALL + "import os\nassert call(302, os.getppid(), 7, None, None) == 'ENOSYS'\n"
    "raise SystemExit(1)",
    "packages that are installed": (
        "import json, os\nprint(os.listdir(os.path.dirname(os.path.dirname(json.__file__)) + '/site-packages'))"
    ),
    "the names in the standard library": (
        "import json, os\nprint(os.listdir(os.path.dirname(os.path.dirname(json.__file__))))"
    ),
    "a value of a class that lies": "class M:\n    __class__ = property(lambda self: int)\ndef f(n): return M()",
}

ENDED = {
    "NaN as a key": "def f(n): return {float('nan'): 4242}",
    "a number that counts as another": "class S(complex):\n    __eq__ = lambda *_: True\ndef f(n): return S(1)",
    "read its own output": (
        "import os\nprint('x', flush=True)\nfd = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)\n"
        "try: os.read(fd, 9)\nexcept BlockingIOError: pass"
    ),
    "close all": "import os\nos.closerange(0, 100)",
    "the value's descriptor on stdout": "import os\ndef f(n):\n    os.dup2(1, 3)\n    return 4242",
    "stdout on the value's descriptor": "import os\ndef f(n):\n    os.dup2(3, 1)\n    print('4242.0', flush=True)\n"
    "    os._exit(0)",
    "a text that is another": "class S(str):\n    __str__ = __repr__ = lambda self: '4242'\n"
    "    encode = lambda *_: b'4242'\ndef f(n): return S('1')",
    "an integer that is another": "class S(int):\n    __str__ = __repr__ = lambda self: '4242'\n"
    "    __index__ = __int__ = lambda self: 4242\ndef f(n): return S(1)",
    "a float that is another": "class S(float):\n    __repr__ = lambda self: '4242'\ndef f(n): return S(1)",
    "an enumeration": "import enum\nclass S(enum.IntEnum):\n    A = 1\n    __str__ = lambda self: '4242'\n"
    "def f(n): return S.A",
    "two values of one key": 'import os\ndef f(n):\n    os.write(3, b\'{"a":4242,"a":1}\')\n    os._exit(0)',
    "a mark before the value": "import os\ndef f(n):\n    os.write(3, b'\\xef\\xbb\\xbf4242')\n    os._exit(0)",
    "a null byte after it": "import os\ndef f(n):\n    os.write(3, b'4242\\0')\n    os._exit(0)",
    "other bytes for it": "import os\ndef f(n):\n    os.write(3, '4242'.encode('utf-16'))\n    os._exit(0)",
    "digits of other scripts": "import os\ndef f(n):\n    os.write(3, '٤٢٤٢'.encode())\n    os._exit(0)",
    "digits apart": "import os\ndef f(n):\n    os.write(3, b'4_242')\n    os._exit(0)",
    "an integer beyond all limits": "import sys\nsys.set_int_max_str_digits(0)\ndef f(n): return 10 ** 9000",
    "a coding of its own": "import codecs\ncodecs.register_error('strict', lambda e: ('4242', e.end))\n"
    "def f(n): return '\\ud800'",
    "frames of the worker, traced": (
        "import atexit, sys\nseen = []\ndef trace(frame, event, argument):\n    seen.append(argument)\n"
        "    return trace\nframe = sys._getframe()\nwhile frame:\n    frame.f_trace = trace\n    frame = frame.f_back\n"
        "@atexit.register\ndef tell():\n    sys.settrace(None)\n    print([x for x in seen if x == 2121 * 2])\n"
        "sys.settrace(trace)"
    ),
    "an audit hook": "import sys\nsys.addaudithook(lambda *a: None)\ndef f(n): return 1",
    "a finder of modules": "import sys\nsys.meta_path.insert(0, sys)\ndef f(n): return 1",
    "a collector's callback": "import gc, os\ngc.callbacks.append(lambda *a: os.write(1, b'x'))\ngc.collect()",
    "a timer's signal": "import signal, os\nsignal.signal(signal.SIGALRM, lambda *a: os._exit(0))\n"
    "signal.setitimer(signal.ITIMER_REAL, 0.01)\nwhile True: pass",
    "an end put off": "import faulthandler\nfaulthandler.dump_traceback_later(60, exit=False)",
    "the worker's own table of modules": "import sys\nsys.modules.clear()",
}

LOOP = """
import gc, os, socket, sys
for name, module in list(sys.modules.items()):
    if name.startswith("guest"):
        for key in ("_exit", "_write"):
            if hasattr(module, key):
                setattr(module, key, lambda *a: None)
os._exit = lambda *a: None
gc.unfreeze()
for thing in gc.get_objects():
    if isinstance(thing, socket.socket):
        try: thing.send(b"x" * 40)
        except OSError: pass
"""
"""Ends where it must not, so that it comes back into the worker's loop, in its own process; and asks for the socket."""


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_killed_by_the_kernel(attack, name: str) -> None:
    await attack(FORBIDDEN[name], "forbidden")


@pytest.mark.parametrize("name", REFUSED)
async def test_refused(attack, name: str) -> None:
    result = await attack(REFUSED[name], "crash")
    assert result.exit_code == 1 and "got through" not in result.errors
    assert not result.stdout


@pytest.mark.parametrize("name", ENDED)
async def test_it_ends_and_does_not_pass(attack, name: str) -> None:
    await attack(ENDED[name], "ok", *(["crash"] if "modules" in name or "coding" in name else []))


async def test_coming_back_into_the_workers_loop(attack) -> None:
    await attack(LOOP, "ok", "crash", "forbidden")


@pytest.mark.parametrize("name", ["list", "dict", "tuple"])
async def test_containers_that_lie_are_what_they_say(attack, name: str) -> None:
    """What is written is what an iteration gives, and that is an answer like any other."""
    source = {
        "list": "class S(list):\n    __iter__ = lambda self: iter([17])\n    __len__ = lambda self: 1\n",
        "dict": "class S(dict):\n    items = lambda self: [('a', 17)]\n    __len__ = lambda self: 1\n",
        "tuple": "class S(tuple):\n    __getitem__ = lambda self, i: 17\n    __len__ = lambda self: 1\n",
    }[name]
    await attack(source + "def f(n): return S()", "ok")
