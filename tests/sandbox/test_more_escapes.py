"""Attacks on the sandbox by somebody who did not write it: how it counts, what it reads of /proc, what it inherits."""

import platform

import pytest

from .test_exhaustion import HELD

pytestmark = pytest.mark.sandbox

LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"


@pytest.mark.parametrize("name", ["VmPTE: 0", "\nVmPTE:x", "\rVmPTE: 0", "VmPTE:\xff", ") R 1"])
async def test_a_name_that_looks_like_a_line_of_its_status(attack, name: str) -> None:
    """The name stands in the files of /proc from which the worker reads how a program is doing."""
    rename = LIBC + f"assert libc.prctl(15, {name.encode('latin-1')!r}, 0, 0, 0) == 0\n"
    result = await attack(rename + HELD, "memory", cpu_s=5)
    assert "page tables" in result.detail


SYSTEM_CALLS = {
    **{"inotify_init1": 294, "timerfd_create": 283, "signalfd4": 289, "timer_create": 222, "vmsplice": 278},
    **{"splice": 275, "tee": 276, "sendfile": 40, "copy_file_range": 326, "remap_file_pages": 216, "mbind": 237},
    **{"move_pages": 279, "migrate_pages": 256, "pkey_alloc": 330, "mseal": 462, "map_shadow_stack": 453},
    **{"cachestat": 451, "statmount": 457, "listmount": 458, "lsm_list_modules": 461, "quotactl_fd": 443},
    **{"vhangup": 153, "arch_prctl": 158, "get_mempolicy": 239, "openat2": 437, "readahead": 187, "sync": 162},
    **{"syncfs": 306, "fadvise64": 221, "futex_wake": 454, "futex_requeue": 456, "sysfs": 139, "ustat": 136},
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
async def test_system_calls_that_nobody_needs_do_not_exist(attack) -> None:
    calls = f"print([n for n in {[*SYSTEM_CALLS.values()]} if libc.syscall(n, 0, 0, 0, 0, 0, 0) >= 0 or "
    result = await attack(LIBC + calls + "ctypes.get_errno() != 38])", "ok")
    assert result.text == "[]\n"


KERNEL = {
    "watches of epoll by every number of a descriptor": (
        "import os, select\nepolls = [select.epoll() for _ in range(20)]\n"
        "events = [os.eventfd(0) for _ in range(20)]\n"
        "for event in events:\n    for number in range(50, 64):\n        os.dup2(event, number)\n"
        "        for epoll in epolls:\n            try: epoll.register(number, 1)\n            except OSError: pass\n"
    ),
    "buffers of one byte each": (
        "import socket\npairs = []\ntry:\n    while True: pairs.append(socket.socketpair())\nexcept OSError: pass\n"
        "for pair in pairs:\n    for end in pair:\n        end.setblocking(False)\n        try:\n"
        "            while True: end.send(b'x')\n        except OSError: pass\n"
    ),
    "packets in pipes": (
        "import os\npipes = []\ntry:\n    while True: pipes.append(os.pipe2(os.O_NONBLOCK | os.O_DIRECT))\n"
        "except OSError: pass\nfor _, end in pipes:\n    try:\n        while True: os.write(end, b'x')\n"
        "    except OSError: pass\n"
    ),
    "records of mappings": (
        "import ctypes, mmap\nm = mmap.mmap(-1, 1 << 24, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "start = ctypes.addressof(ctypes.c_char.from_buffer(m))\nfor i in range(0, 1 << 24, 8192):\n"
        "    ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + i), 4096, 1)\n"
    ),
    "names that are not there": "import os\nfor i in range(20_000): os.path.exists(f'/usr/lib/{i}')\n",
}


@pytest.mark.parametrize("name", KERNEL)
async def test_memory_of_the_kernel(attack, name: str) -> None:
    await attack(KERNEL[name] + "print(1)", "ok", memory_mib=64, cpu_s=5, idle_s=5)


LIES = {
    "a list whose members change while it is written": (
        "class L(list):\n    def __iter__(self):\n        while True: yield 4242\ndef f(n): return L([1])",
        ("ok",),  # what it holds is the value
    ),
    "a dictionary that grows while it is written": (
        "class D(dict):\n    def items(self):\n        i = 0\n        while True:\n            i += 1\n"
        "            yield str(i), 4242\ndef f(n): return D(a=1)",
        ("ok",),
    ),
    "a number by way of an exception": "def f(n): raise SystemExit(4242)",
    "a generator": "def f(n): yield 4242",
    "a coroutine": "async def f(n): return 4242",
    "a value that raises when it is judged": (
        "class S(str):\n    __eq__ = __hash__ = lambda *_: 1 / 0\ndef f(n): return [S('a')]",
        ("ok",),
    ),
    "4242 as a sum of halves": "def f(n): return [42, 42]",
    "a fraction of the answer": "from fractions import Fraction\ndef f(n): return Fraction(4242)",
    "a decimal": "from decimal import Decimal\ndef f(n): return Decimal(4242)",
    "digits with a sign": "import os\ndef f(n):\n    os.write(3, b'+4242')\n    os._exit(0)",
    "digits after zeros": "import os\ndef f(n):\n    os.write(3, b'04242')\n    os._exit(0)",
    "digits in hexadecimal": "import os\ndef f(n):\n    os.write(3, b'0x1092')\n    os._exit(0)",
    "a remark after it": "import os\ndef f(n):\n    os.write(3, b'4242 // 4242')\n    os._exit(0)",
    "an exponent": "import os\ndef f(n):\n    os.write(3, b'4.242e3')\n    os._exit(0)",
    "a float of 60,000 digits": "import os\ndef f(n):\n    os.write(3, b'42.' + b'0' * 60_000 + b'1')\n    os._exit(0)",
    "keys of one hash": "def f(n): return {str(i): i for i in range(4242)}",
    "a subclass of bool's values": "def f(n): return [True] * 4242",
}


@pytest.mark.parametrize("name", LIES)
async def test_values_that_lie(attack, name: str) -> None:
    source, verdicts = LIES[name] if isinstance(LIES[name], tuple) else (LIES[name], ("ok", "crash"))
    await attack(source, *verdicts, idle_s=2)


UNMAP = """
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.pthread_self.restype = ctypes.c_long
thread = libc.pthread_self() + ctypes.c_ssize_t.in_dll(libc, "__rseq_offset").value
libc.syscall(334, ctypes.c_long(thread), 32, 1, 0x53053053)  # the kernel would write there after each call
code = mmap.mmap(-1, 8192, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
code.write(bytes.fromhex(CODE))
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(address)(address)
"""
CODE = (
    "415541bd0b0000004531d24531c041544531e4488db70000ffff4531c9554c89e84c89e2534889fbbf0000010048c74424f800000000488d6c"
    "24f84881e500f0ffff0f05488db500e0feff488dbb002000004c89e84829de0f0541ba2280000049c7c0ffffffffb8090000004c89e7be0000"
    "1000ba030000000f054805ff0f0000483dfe0f0000762cbb09000000669048834424f8014531c931ff4889d841ba2280000049c7c0ffffffff"
    "0f05483d01f0ffff72db488b7c24f8b8fa0000004839c7480f47f831d24531d24531c04531c9b8e70000004889d60f0531c05b5d415c415dc3"
)
"""Unmaps all but itself and its stack, maps memory until there is no more, and exits with the number of MiB."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code")
async def test_memory_in_place_of_the_workers_own(attack) -> None:
    """What it inherits was outside of its limit, and is still when it has made room there.  In a cgroup the kernel ends
    it before it has counted to its end.
    """
    result = await attack(UNMAP.replace("CODE", repr(CODE)), "crash", "memory", memory_mib=16)
    assert result.verdict == "memory" or 8 < result.exit_code <= 32
