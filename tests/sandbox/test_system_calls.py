import subprocess
import sys

import pytest

from troupe.sandbox import system_calls

UNDER_THE_FILTER = """
import os, sys
from troupe.sandbox.guest.kernel import Seccomp, lock_down
from troupe.sandbox.system_calls import compiled
filter = Seccomp(compiled({abi}))
lock_down()
filter.install()
os.open({path!r}, os.O_RDONLY)
try:
    os.open({path!r}, os.O_RDONLY | os.O_TRUNC)
except PermissionError:
    print("refused")
else:
    print("truncated")
"""


def test_no_call_is_named_twice() -> None:
    special = ["fcntl", "ioctl", "prctl", "clone", "open", "openat", "socketpair", "sendto", "prlimit64", "clone3"]
    special += ["mmap", "close_range"]
    names = [*system_calls.ALLOWED, *system_calls.REFUSED, *system_calls.FATAL, *special]
    assert sorted(names) == sorted(set(names))


def test_the_filter_fits_into_the_kernel_and_is_the_same_every_time() -> None:
    code = system_calls.compiled(7)
    system_calls.compiled.cache_clear()
    assert system_calls.compiled(7) == code
    assert 0 < len(code) // 8 < 4096


@pytest.mark.parametrize(("abi", "said"), [(2, "refused"), (3, "truncated")])
def test_seccomp_refuses_to_truncate_where_landlock_does_not_see_it(tmp_path, abi: int, said: str) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    code = UNDER_THE_FILTER.format(abi=abi, path=str(file))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{said}\n"
    assert bool(file.read_text()) == (said == "refused")
