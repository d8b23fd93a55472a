"""Starts a worker process: the isolation that this machine has, and the command line for it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from .cgroup import find_cgroups
from .guest.kernel import landlock_abi
from .jobs import SandboxUnavailable
from .system_calls import asking_for_threads, compiled, unavailable

Isolation = Literal["bubblewrap", "landlock", "unsafe"]
"""``bubblewrap``: namespaces around Landlock and seccomp.  ``landlock``: Landlock and seccomp.  ``unsafe``: fewer
layers."""

NOBODY: Final = 65534
_FOLDER: Final = Path(__file__).parent
_START: Final = "import sys; sys.path.append({folder!r}); from guest.zygote import main; sys.path.pop(); main()"
_ENVIRONMENT: Final = {
    "PYTHONHASHSEED": "0",
    "MALLOC_ARENA_MAX": "1",  # else the address space, which memory limits count, grows with the number of threads
    **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")},
}


@dataclass(frozen=True)
class LaunchPlan:
    """How the workers of one sandbox are started."""

    isolation: Isolation
    imports: tuple[str, ...]
    landlock: bool = True
    seccomp: bytes = b""
    """The filter of programs; empty: none, and no limit of threads either."""
    cgroups: Path | None = None
    """The folder in which the programs of each worker get a cgroup, if there is one."""

    @property
    def interpreter(self) -> str:
        """The interpreter that a virtual environment is based on; its packages are added by ``site`` alone."""
        return os.path.realpath(sys.executable)

    @property
    def site(self) -> list[str]:
        """The folders of installed packages."""
        return sorted({os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")})

    @property
    def user(self) -> int | None:
        """The id of ``nobody`` if root starts the workers and ``nobody`` can read the interpreter; else ``None``."""
        if os.geteuid() != 0:
            return None
        needed = [self.interpreter, sys.base_prefix, str(_FOLDER), *(self.site if self.imports else ())]
        return NOBODY if all(_open_to_all(Path(path)) for path in needed) else None

    def command(self) -> list[str]:
        """The worker's command line."""
        start = _START.format(folder=str(_FOLDER))
        python = [self.interpreter, "-P", "-s", "-S", "-B", "-X", "utf8", "-c", start]
        return [*_bubblewrap(self), *python] if self.isolation == "bubblewrap" else python

    def config(self) -> bytes:
        """The worker's first message."""
        threads = asking_for_threads() if self.seccomp else b""
        settings = {
            "imports": self.imports,
            "site": self.site,
            "landlock": self.landlock,
            "seccomp": base64.b64encode(self.seccomp).decode(),
            "threads": base64.b64encode(threads).decode(),
            "cgroup": self.cgroups is not None,
        }
        return json.dumps(settings).encode()


def unsafe_reason() -> str | None:
    """The reason why untrusted programs cannot run safely here; ``None`` if they can."""
    if not landlock_abi():
        return "the kernel has no Landlock (it takes Linux 5.13 or newer, and a container profile that permits it)"
    return unavailable()


def plan(isolation: Isolation, imports: Sequence[str]) -> LaunchPlan:
    """The plan for ``isolation``; ``unsafe`` uses the layers that are available.

    Raises :class:`SandboxUnavailable` if a layer of another isolation is missing.
    """
    abi, no_seccomp = landlock_abi(), unavailable()
    if isolation == "unsafe":
        seccomp = b"" if no_seccomp else compiled(abi or 1)
        return LaunchPlan(isolation, tuple(imports), landlock=abi > 0, seccomp=seccomp, cgroups=find_cgroups())
    reason = unsafe_reason()
    if reason:
        raise SandboxUnavailable(reason)
    if isolation == "bubblewrap" and shutil.which("bwrap") is None:
        raise SandboxUnavailable("bubblewrap is not installed (no `bwrap` on the path)")
    return LaunchPlan(isolation, tuple(imports), seccomp=compiled(abi), cgroups=find_cgroups())


def start(plan: LaunchPlan) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a worker; returns its process and the trainer's end of its socket.  The worker is not ready yet.

    Raises :class:`SandboxUnavailable` if the system refuses to start it.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        ours.send(plan.config())  # stays in the socket, so that this cannot fail even if the process ends at once
        try:
            process = subprocess.Popen(
                plan.command(),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_ENVIRONMENT,
                cwd="/",
                user=plan.user,
                group=plan.user,
                extra_groups=None if plan.user is None else [],
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SandboxUnavailable(f"{plan.isolation} sandbox: its worker cannot be started: {error}") from error
    ours.setblocking(False)
    return process, ours


def _bubblewrap(plan: LaunchPlan) -> list[str]:
    """The arguments: own namespaces, no network, a read-only view of the interpreter and its requirements only."""
    program = shutil.which("bwrap")
    assert program is not None, "plan() comes first"
    # The whole path, since the worker's environment has no PATH.
    arguments = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    arguments += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox", "--chdir", "/"]
    for path in ("/usr", "/lib", "/lib64", "/etc/ld.so.cache"):
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            arguments += ["--ro-bind", path, path]
    for path in (os.path.realpath(sys.base_prefix), os.path.dirname(plan.interpreter), str(_FOLDER), *plan.site):
        if not path.startswith("/usr/"):
            arguments += ["--ro-bind", path, path]
    return [*arguments, "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/", "--"]


def _open_to_all(path: Path) -> bool:
    """Whether every user may read ``path`` and enter the folders above it."""
    parents = all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)
    return parents and bool(path.stat().st_mode & stat.S_IROTH)
