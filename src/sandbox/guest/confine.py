"""A forked process gives up its rights before it reads a program, but for the files that a program may read: standard
library, shared libraries, imported packages."""

from __future__ import annotations

import fcntl
import glob
import os
import resource
import socket
import sys
import sysconfig
from collections.abc import Sequence
from typing import Final, NamedTuple

from .kernel import Landlock, Seccomp, landlock_restrict
from .wire import RunRequest

STDIN, STDOUT, STDERR, VALUE, PAYLOAD, READY, RULES = range(7)
_STACK: Final = 8 << 20
_DESCRIPTORS: Final = 16, 64
"""At least and at most."""
_CPU_BACKSTOP_S: Final = 2  # whole seconds above the limit, which the worker itself enforces to the millisecond


class Own(NamedTuple):
    """Memory of the worker itself, in bytes: all its address space, and the part of it that may be written.

    A program may unmap what it inherits, libraries for example, and map memory of its own in its place: it gains that
    part at the most.
    """

    mapped: int
    data: int


class Confinement:
    """The layers that restrict every run; a layer that is ``None`` is left out (unsafe execution only)."""

    def __init__(self, landlock: Landlock | None, seccomp: Seccomp | None) -> None:
        self._landlock, self._seccomp = landlock, seccomp
        with socket.socket(socket.AF_UNIX) as one:
            self._buffer_bytes = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

    def apply(self, request: RunRequest, files: Sequence[int], ready: int, own: Own) -> None:
        """Take the five ``files`` of a request as 0 to 4, close all others, and restrict this process.

        The program's memory limit is added to the worker's ``own`` memory.  Writes one byte to ``ready`` at the end.
        Raises ``OSError`` if a layer cannot be applied.
        """
        os.setsid()
        self._take(files, ready)
        _limit(request, own, self._buffer_bytes)
        if self._landlock is not None:
            landlock_restrict(RULES)
            os.close(RULES)
        if self._seccomp is not None:
            self._seccomp.install()
        os.write(READY, b"1")
        os.close(READY)

    def _take(self, files: Sequence[int], ready: int) -> None:
        wanted = [*files, ready] + ([self._landlock.fd] if self._landlock is not None else [])
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in wanted]  # numbers above 0 to 6, which are assigned below
        for target, fd in enumerate(high):
            os.dup2(fd, target)
        os.closerange(len(high), 1 << 16)


def _limit(request: RunRequest, own: Own, buffer_bytes: int) -> None:
    """``buffer_bytes``: memory that one descriptor, a socket, can hold in the kernel; some machines allow much."""
    cpu = int(request.cpu_s) + _CPU_BACKSTOP_S
    fewest, most = _DESCRIPTORS
    limits = {
        resource.RLIMIT_AS: own.mapped + request.memory,
        resource.RLIMIT_DATA: own.data + request.memory,
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_STACK: _STACK,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: min(max(request.memory // buffer_bytes, fewest), most),
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


_NOT_STANDARD = {"site-packages", "dist-packages"}


def standard_library() -> list[str]:
    """Files and folders that may be read.

    The folder of installed packages often lies inside the standard library and stays closed.  So does a list of the
    library's own folder, for a rule of Landlock holds for all folders below; imports use the list that the worker has.
    """
    folders = sorted({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
    readable = [os.path.join(f, name) for f in folders for name in os.listdir(f) if name not in _NOT_STANDARD]
    triplet = sysconfig.get_config_var("MULTIARCH") or "none"
    readable += [f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib64", "/usr/lib64", "/etc/ld.so.cache"]
    readable += glob.glob("/usr/lib/*.so*") + glob.glob(os.path.join(sys.base_prefix, "lib", "*.so*"))
    return [*readable, "/usr/share/zoneinfo", "/dev/urandom"]


def package_folders(site: Sequence[str]) -> list[str]:
    """The folders and modules in ``site`` of the imported packages, and their shared libraries (``NAME.libs``)."""
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        folder = next((s for s in site if file and file.startswith(s + os.sep)), None)
        if file is None or folder is None:
            continue
        top = os.path.join(folder, os.path.relpath(file, folder).split(os.sep)[0])
        found |= {top, os.path.join(folder, f"{name.partition('.')[0]}.libs")}
    return sorted(path for path in found if os.path.exists(path))
