"""One worker process, as the trainer controls it.

The verdict of a run is from observations of the kernel and the worker only, never from a program's output."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

from .cgroup import Cgroup
from .drain import Drain
from .guest.plain import encode
from .guest.wire import MEMORY_EXIT, MESSAGE_BYTES, Cause, RunReply, RunRequest, pack_stop
from .jobs import NO_VALUE, Call, Job, Limits, Result, SandboxUnavailable, Verdict
from .launch import LaunchPlan, start
from .values import read_value

_START_S: Final = 60.0
_GRACE_S: Final = 10.0
_STDERR_FACTOR: Final = 16
_SEALS: Final = 0x1 | 0x2 | 0x4 | 0x8  # F_SEAL_SEAL, _SHRINK, _GROW, _WRITE
_ADD_SEALS: Final = 1033


class WorkerDied(RuntimeError):
    """The worker process ended, or stopped answering, during a run."""


class Worker:
    """A fork server that runs one job at a time."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = plan
        self._cgroup: Cgroup | None = None
        self._process, self._control = start(plan)
        self._run = 0
        self.alive = True

    @property
    def pid(self) -> int:
        """The id of the process that was started: bubblewrap, or the interpreter."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended, by itself or because something outside killed it."""
        return self._process.poll() is not None

    async def ready(self) -> None:
        """Wait for the worker's imports.  Raises :class:`SandboxUnavailable` with the reason if it cannot start."""
        loop = asyncio.get_running_loop()
        try:
            if self._plan.cgroups is not None:
                self._cgroup = Cgroup(self._plan.cgroups)
                with self._cgroup.processes.open("wb") as file:
                    socket.send_fds(self._control, [b"cgroup"], [file.fileno()])
            hello = await asyncio.wait_for(loop.sock_recv(self._control, MESSAGE_BYTES), _START_S)
        except (TimeoutError, ConnectionError):
            hello = b""
        answer = json.loads(hello) if hello else {"error": "the worker ended before it was ready"}
        if "error" in answer:
            self.kill()
            raise SandboxUnavailable(f"{self._plan.isolation} sandbox: {answer['error']}{self._complaint()}")

    async def run(self, job: Job, limits: Limits) -> Result:
        """Run ``job``.  Raises :class:`WorkerDied`.  If this is left by any exception, the worker is killed."""
        self._run += 1
        try:
            with ExitStack() as stack:
                return await self._exchange(job, limits, stack)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End the worker and its program; a run that waits for its reply raises :class:`WorkerDied`."""
        if self.alive:
            self.alive = False
            self._process.kill()
            self._process.wait()
            if self._cgroup is not None:
                self._cgroup.remove()

    def close(self) -> None:
        """End the worker and close its socket.  No run may be waiting for its reply."""
        self.kill()
        self._control.close()
        if self._process.stderr is not None:
            self._process.stderr.close()

    async def _exchange(self, job: Job, limits: Limits, stack: ExitStack) -> Result:
        drains = self._drains(job, limits, stack)
        stdin = _sealed(job.stdin.encode("utf-8", "surrogatepass"), stack)
        payload = _sealed(json.dumps({"source": job.source, "seed": job.seed, "entry": _entry(job)}).encode(), stack)
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        stack.callback(os.close, nowhere)
        ends = [drains[name].write_end if name in drains else nowhere for name in ("stdout", "stderr", "value")]
        memory = limits.memory_mib << 20
        request = RunRequest(self._run, limits.cpu_s, limits.idle_s, limits.backstop_s, memory, limits.threads)
        if self._cgroup is not None:
            self._cgroup.limit(memory)
        try:
            socket.send_fds(self._control, [request.pack()], [stdin, *ends, payload])
            for drain in drains.values():
                drain.close_write_end()
            reply = await self._reply(limits)
            await asyncio.wait_for(asyncio.gather(*(drain.ended for drain in drains.values())), _GRACE_S)
        except (TimeoutError, OSError) as error:
            raise WorkerDied(f"worker {self.pid}: {type(error).__name__} {error}{self._complaint()}") from error
        if self._cgroup is not None and reply.status == signal.SIGKILL and self._cgroup.killed():
            reply = reply._replace(cause=Cause.CGROUP)
        return _result(reply, drains, limits)

    def _drains(self, job: Job, limits: Limits, stack: ExitStack) -> dict[str, Drain]:
        keep_and_limit = {
            "stdout": (limits.stdout_bytes, limits.stdout_bytes),
            "stderr": (limits.stderr_bytes, limits.stderr_bytes * _STDERR_FACTOR),
        }
        if job.entry is not None:
            keep_and_limit["value"] = (limits.value_bytes, limits.value_bytes)
        drains = {}
        for name, (keep, limit) in keep_and_limit.items():
            drains[name] = Drain(keep, limit, self._stopper(self._run))
            stack.callback(drains[name].close)
        return drains

    def _stopper(self, run: int) -> Callable[[], None]:
        def stop() -> None:
            if self.alive and run == self._run:
                with suppress(ConnectionError):  # it is dead; the run that waits for its reply raises WorkerDied
                    self._control.send(pack_stop(run))

        return stop

    async def _reply(self, limits: Limits) -> RunReply:
        loop = asyncio.get_running_loop()
        received = loop.sock_recv(self._control, MESSAGE_BYTES)
        data = await asyncio.wait_for(received, limits.backstop_s + _GRACE_S)
        if not data:
            raise ConnectionError("its socket closed")
        return RunReply.unpack(data)

    def _complaint(self) -> str:
        """The worker's own output on stderr, if any; programs cannot write there."""
        if self._process.stderr is None or self._process.stderr.closed:
            return ""
        os.set_blocking(self._process.stderr.fileno(), False)
        text = (self._process.stderr.read() or b"").decode("utf-8", "replace").strip()
        return f" ({text[-2000:]})" if text else ""


def _entry(job: Job) -> dict[str, object] | None:
    """The entry as JSON: a call has the key ``function``, an expression the key ``expression``."""
    if job.entry is None:
        return None
    entry = job.entry
    if isinstance(entry, Call):
        return {"function": entry.function, "args": encode([*entry.args]), "kwargs": encode({**entry.kwargs})}
    return {"expression": entry.text, "variables": encode({**entry.variables})}


def _sealed(data: bytes, stack: ExitStack) -> int:
    """A descriptor to read ``data`` from; the data cannot be changed any more."""
    import fcntl  # missing on Windows, where this package can be imported but raises SandboxUnavailable

    fd = os.memfd_create("job", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, fd)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, _ADD_SEALS, _SEALS)
    return fd


def _result(reply: RunReply, drains: dict[str, Drain], limits: Limits) -> Result:
    flooded = next((name for name, drain in drains.items() if drain.overflowed), None)
    verdict, detail = judge(reply, limits, flooded)
    signalled = os.WIFSIGNALED(reply.status)
    value = read_value(drains["value"].data) if "value" in drains and verdict is Verdict.OK else NO_VALUE
    return Result(
        verdict=verdict,
        stdout=drains["stdout"].data,
        stderr=drains["stderr"].data,
        value=value,
        exit_code=None if signalled else os.waitstatus_to_exitcode(reply.status),
        signal=os.WTERMSIG(reply.status) if signalled else None,
        cpu_s=reply.cpu_s,
        wall_s=reply.wall_s,
        waited_s=reply.waited_s,
        peak_bytes=reply.peak,
        stderr_truncated=drains["stderr"].truncated,
        detail=detail,
    )


_NEARLY_ALL = 0.9
"""From this share of the memory limit on, a signal counts as a failed allocation."""


def judge(reply: RunReply, limits: Limits, flooded: str | None) -> tuple[Verdict, str]:
    """The verdict and its reason; ``flooded`` names the stream that exceeded its limit, if any."""
    if reply.cause is Cause.UNPREPARED:
        return Verdict.INFRA, "the worker could not restrict the process; the program was not started"
    if flooded is not None:
        return Verdict.OUTPUT_LIMIT, f"more than its limit was written to {flooded}"
    number = os.WTERMSIG(reply.status) if os.WIFSIGNALED(reply.status) else None
    if number == signal.SIGSYS:
        return Verdict.FORBIDDEN, "a forbidden system call"
    if reply.cause is Cause.PAGE_TABLES:
        return Verdict.MEMORY, f"page tables took too large a share of the memory limit of {limits.memory_mib} MiB"
    if reply.cause is Cause.CGROUP:
        return Verdict.MEMORY, f"memory, with the kernel's for it, reached the limit of {limits.memory_mib} MiB"
    if reply.cause is Cause.CPU or number == signal.SIGXCPU or reply.cpu_s >= limits.cpu_s:
        return Verdict.TIMEOUT, f"{limits.cpu_s} s of CPU time were used up"
    if reply.cause is Cause.IDLE:
        return Verdict.TIMEOUT, f"it was idle for {limits.idle_s} s"
    if reply.cause is Cause.STARVED:
        return Verdict.INFRA, f"the machine gave it too little CPU time within {limits.backstop_s} s"
    return _ending(reply, number, limits)


def _ending(reply: RunReply, number: int | None, limits: Limits) -> tuple[Verdict, str]:
    """The verdict of a run that the worker did not kill."""
    if number is None:
        code = os.waitstatus_to_exitcode(reply.status)
        if code == MEMORY_EXIT:
            return Verdict.MEMORY, f"MemoryError at a limit of {limits.memory_mib} MiB"
        refused = f", after it asked for more than {limits.threads} threads" if reply.refused else ""
        return (Verdict.OK, "") if code == 0 else (Verdict.CRASH, f"exit status {code}{refused}")
    if reply.peak >= _NEARLY_ALL * (limits.memory_mib << 20):
        return Verdict.MEMORY, f"signal {number} at the memory limit of {limits.memory_mib} MiB"
    return Verdict.CRASH, f"signal {number}"
