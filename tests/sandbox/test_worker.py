import signal

import pytest

from troupe.sandbox import Limits, Verdict
from troupe.sandbox.guest.wire import MEMORY_EXIT, Cause, RunReply
from troupe.sandbox.worker import judge

LIMITS = Limits(cpu_s=1.0, memory_mib=100)
FULL = 95 << 20


@pytest.mark.parametrize(
    ("cause", "status", "cpu_s", "peak", "flooded", "verdict"),
    [
        (Cause.ENDED, 0, 0.1, 0, None, "ok"),
        (Cause.ENDED, 1 << 8, 0.1, 0, None, "crash"),
        (Cause.ENDED, MEMORY_EXIT << 8, 0.1, 0, None, "memory"),
        (Cause.ENDED, signal.SIGSEGV, 0.1, 0, None, "crash"),
        (Cause.ENDED, signal.SIGABRT, 0.1, FULL, None, "memory"),
        (Cause.ENDED, 0, 0.1, FULL, None, "ok"),
        (Cause.ENDED, signal.SIGSYS, 0.1, 0, None, "forbidden"),
        (Cause.ENDED, signal.SIGXCPU, 0.1, 0, None, "timeout"),
        (Cause.ENDED, 0, 1.01, 0, None, "timeout"),
        (Cause.ENDED, MEMORY_EXIT << 8, 1.01, 0, None, "timeout"),
        (Cause.ENDED, 0, 0.1, 0, "stdout", "output_limit"),
        (Cause.STOPPED, signal.SIGKILL, 0.1, 0, "stdout", "output_limit"),
        (Cause.CPU, signal.SIGKILL, 1.0, FULL, None, "timeout"),
        (Cause.IDLE, signal.SIGKILL, 0.0, 0, None, "timeout"),
        (Cause.STARVED, signal.SIGKILL, 0.5, 0, None, "infra"),
        (Cause.UNPREPARED, 1 << 8, 0.0, 0, None, "infra"),
        (Cause.PAGE_TABLES, signal.SIGKILL, 0.1, 0, None, "memory"),
        (Cause.CGROUP, signal.SIGKILL, 0.1, 0, None, "memory"),
    ],
)
def test_the_facts_decide(
    cause: Cause, status: int, cpu_s: float, peak: int, flooded: str | None, verdict: str
) -> None:
    found, detail = judge(RunReply(1, cause, status, cpu_s, cpu_s, peak), LIMITS, flooded)
    assert found is Verdict(verdict)
    assert bool(detail) == (verdict != "ok")
