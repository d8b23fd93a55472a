"""The worker: an interpreter that has imported the modules that programs need, and forks once for every run.

It is started by exec with an empty environment, never reads a program, its input or its output (it passes the
descriptors on), runs one program at a time, and ends when the trainer's end of its socket closes.
"""

from __future__ import annotations

import base64
import gc
import importlib
import importlib.util
import json
import os
import resource
import socket
import sys
import time
from typing import Any, NoReturn

from . import wire
from .confine import Confinement, Own, package_folders, standard_library
from .kernel import Landlock, Seccomp, ThreadGate, die_with_parent, lock_down, no_huge_pages
from .program import run_payload
from .supervise import page_tables, read, supervise
from .wire import Cause, RunReply, RunRequest

_PAGE = resource.getpagesize()


def main() -> None:
    """Serve runs over the socket that is this process's standard input."""
    control = socket.socket(fileno=0)
    config = json.loads(control.recv(wire.MESSAGE_BYTES))
    cgroup = None
    if config["cgroup"]:
        _, (cgroup,), _, _ = socket.recv_fds(control, wire.MESSAGE_BYTES, 1)
    try:
        worker = _prepare(config, cgroup)
    except (OSError, ImportError, ValueError) as error:
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    control.send(json.dumps({"landlock_abi": worker.landlock_abi}).encode())
    worker.serve(control)


def _prepare(config: dict[str, Any], cgroup: int | None) -> ForkServer:
    die_with_parent()
    sys.path += config["site"]
    for name in config["imports"]:
        importlib.import_module(name)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")  # NumPy loads it lazily, but a run seeds only loaded modules
    for folder in config["site"]:  # other packages cannot be imported; loaded packages still find their own modules
        sys.path.remove(folder)
        sys.path_importer_cache.pop(folder, None)
    os.environ.clear()
    importlib.util.find_spec("no_such_module")  # so that the lists of all folders on the path are in memory
    _add_exit()
    sys.set_int_max_str_digits(0)  # the limit of CPU time bounds them, and published tests have longer integers
    no_huge_pages()
    lock_down()
    if len(os.listdir("/proc/self/task")) > 1:
        raise ValueError(f"one of the imports {', '.join(config['imports'])} starts threads, so runs cannot be forked")
    landlock = Landlock() if config["landlock"] else None
    if landlock is not None:
        landlock.allow([*standard_library(), *package_folders(config["site"])])
    seccomp = Seccomp(base64.b64decode(config["seccomp"])) if config["seccomp"] else None
    gate = ThreadGate(base64.b64decode(config["threads"])) if config["threads"] else None
    for fd in (1, 2):
        os.set_inheritable(fd, False)
    gc.collect()
    gc.freeze()
    abi = landlock.abi if landlock is not None else 0
    return ForkServer(Confinement(landlock, seccomp), gate, abi, cgroup)


def _add_exit() -> None:
    """Add ``exit`` and ``quit``, which the ``site`` module would have added."""
    import _sitebuiltins
    import builtins

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))


class ForkServer:
    """Runs one program at a time, each in its own process, and in ``cgroup``, the file that lists its processes."""

    def __init__(
        self, confinement: Confinement, gate: ThreadGate | None, landlock_abi: int, cgroup: int | None
    ) -> None:
        self.landlock_abi = landlock_abi
        self._confinement, self._gate, self._cgroup = confinement, gate, cgroup
        mapped, resident, _, _, _, data, _ = (int(pages) * _PAGE for pages in read("/proc/self/statm").split())
        self._own, self._resident, self._tables = Own(mapped, data), resident, page_tables("self")

    def serve(self, control: socket.socket) -> None:
        """Serve requests until the trainer closes its end."""
        while True:
            data, files, _, _ = socket.recv_fds(control, wire.MESSAGE_BYTES, wire.FILES)
            if not data:
                return
            if wire.is_request(data):
                control.send(self._run(RunRequest.unpack(data), files, control).pack())

    def _run(self, request: RunRequest, files: list[int], control: socket.socket) -> RunReply:
        begin, worker = time.monotonic(), os.getpid()
        if self._gate is not None:
            self._gate.refused = False
        ready, ready_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(request, files, ready_end, worker)
        for fd in (*files, ready_end):
            os.close(fd)
        cause, waited_s = supervise(pid, request, control, begin=begin, tables=self._tables, gate=self._gate)
        _, status, usage = os.wait4(pid, 0)
        prepared = os.read(ready, 1)
        os.close(ready)
        cpu_s, wall_s = usage.ru_utime + usage.ru_stime, time.monotonic() - begin
        peak = max(usage.ru_maxrss * 1024 - self._resident, 0)
        refused = self._gate is not None and self._gate.refused
        cause = cause if prepared else Cause.UNPREPARED
        return RunReply(request.run, cause, status, cpu_s, wall_s, peak, refused, waited_s)

    def _become(self, request: RunRequest, files: list[int], ready: int, worker: int) -> NoReturn:
        """In the forked process: give up all rights, then run the program.  It ends with the worker at the latest."""
        try:
            die_with_parent()
            if os.getppid() != worker:  # the worker died before die_with_parent
                os._exit(1)
            if self._cgroup is not None:
                os.write(self._cgroup, b"0")
            self._confinement.apply(request, files, ready, self._own)
            gc.enable()
        except BaseException:  # this process must never return into the worker's loop; no byte was written to `ready`
            os._exit(1)
        run_payload()
