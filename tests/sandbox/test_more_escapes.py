"""Attacks on the sandbox by somebody who did not write it: how it counts, what it reads of /proc, what it inherits."""

import platform

import pytest

from .test_exhaustion import HELD

LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"


@pytest.mark.parametrize("name", ["VmPTE: 0", "\nVmPTE:x", "\rVmPTE: 0", "VmPTE:\xff", ") R 1"])
async def test_a_name_that_looks_like_a_line_of_its_status(attack, name: str) -> None:
    """The name stands in the files of /proc from which the worker reads how a program is doing."""
    rename = LIBC + f"assert libc.prctl(15, {name.encode('latin-1')!r}, 0, 0, 0) == 0\n"
    result = await attack(rename + HELD, "memory", cpu_s=5)
    assert "page tables" in result.detail


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
    """What it inherits was outside of its limit, and is still when it has made room there."""
    result = await attack(UNMAP.replace("CODE", repr(CODE)), "crash", memory_mib=16)
    assert 8 < result.exit_code <= 32
