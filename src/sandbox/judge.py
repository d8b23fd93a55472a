"""The verdict of a run, from observations of the kernel and the worker only, never from a program's output."""

from __future__ import annotations

import os
import signal

from .guest.wire import MEMORY_EXIT, Cause, RunReply
from .jobs import Limits, Verdict

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
