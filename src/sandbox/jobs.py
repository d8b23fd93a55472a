"""The interface of a sandbox: jobs, limits, results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final, Protocol, runtime_checkable

PlainValue = Any
"""A value of Python's plain types: JSON's, tuples, sets, bytes, all kinds of numbers, keys that are no text, and
:class:`.guest.plain.Opaque` in place of any other object."""
JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]


class SandboxUnavailable(RuntimeError):
    """This machine cannot run untrusted programs safely; the message names the missing part."""


class Verdict(StrEnum):
    """How a run ended.  ``OK`` means that the program ended normally, never that its answer is right."""

    OK = "ok"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    FORBIDDEN = "forbidden"
    CRASH = "crash"
    INFRA = "infra"
    """The sandbox failed, not the program: nothing is known about the program, and it earns no reward, not even 0."""


@dataclass(frozen=True)
class Limits:
    """Limits of one run.

    ``cpu_s``: CPU time of all threads.  ``idle_s``: wall time in which the run neither computes nor waits for a core
    (it sleeps, or waits for something else).  ``memory_mib``: address space above the worker's own; with a cgroup, all
    memory, the kernel's for this run included, may be 8 MiB more.  A thread beyond ``threads`` fails to start.  More
    standard output than ``stdout_bytes``, or a value of more than ``value_bytes``, ends the run; of standard error the
    first ``stderr_bytes`` are kept, and sixteen times as many end the run.
    """

    cpu_s: float = 2.0
    idle_s: float = 2.0
    memory_mib: int = 512
    threads: int = 64
    stdout_bytes: int = 1 << 18
    stderr_bytes: int = 1 << 16
    value_bytes: int = 1 << 18

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"sandbox limit {name} must be above 0, got {value}")

    @property
    def backstop_s(self) -> float:
        """Wall time after which a run that got too little CPU time from the machine is stopped, as ``INFRA``."""
        return 30 + 10 * (self.cpu_s + self.idle_s)


@dataclass(frozen=True)
class Call:
    """A call of the program's ``function``.  A dotted name is a method of a class, which is instantiated first:
    "Solution.solve" is ``Solution().solve``."""

    function: str
    args: Sequence[PlainValue] = ()
    kwargs: Mapping[str, PlainValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Expression:
    """One Python expression, evaluated with the program's names and the ``variables``."""

    text: str
    variables: Mapping[str, PlainValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One run of one program.

    Without ``entry`` the program runs as ``__main__`` from ``stdin`` to stdout.  With ``entry`` it runs as a module,
    and the value of the call or expression is returned as data.  ``seed`` seeds ``random`` (and NumPy if it is
    imported).  There is no field for an expected answer, which must never enter a process that runs a program.
    """

    source: str = ""
    stdin: str = ""
    entry: Call | Expression | None = None
    seed: int = 0


class Missing(Enum):
    """The absence of a value; not equal to any value."""

    VALUE = "no value"


NO_VALUE: Final = Missing.VALUE


@dataclass(frozen=True)
class Result:
    """The result of a run.  All of it is data from an untrusted source.

    ``value`` is the value of the call or expression, of Python's plain types, or ``NO_VALUE`` if the run wrote nothing
    or something else than one value.  ``exit_code`` is ``None`` if a ``signal`` ended the run, ``signal`` is
    ``None`` otherwise.  ``cpu_s`` and ``wall_s`` are seconds, ``waited_s`` those of ``wall_s`` in which the run, or the
    worker that watches it, waited for a core (0 for a run shorter than its limits of time); ``peak_bytes`` is memory
    above the worker's own.  ``detail`` is the reason for the verdict, in words.
    """

    verdict: Verdict
    stdout: bytes = b""
    stderr: bytes = b""
    value: PlainValue | Missing = NO_VALUE
    exit_code: int | None = None
    signal: int | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0
    waited_s: float = 0.0
    peak_bytes: int = 0
    stderr_truncated: bool = False
    detail: str = ""

    @property
    def text(self) -> str:
        """Standard output as text; invalid UTF-8 becomes U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def errors(self) -> str:
        """Standard error as text; invalid UTF-8 becomes U+FFFD."""
        return self.stderr.decode("utf-8", "replace")


@runtime_checkable
class Sandbox(Protocol):
    """Runs untrusted programs, with workers on this machine or by a service elsewhere."""

    async def run(self, job: Job, limits: Limits | None = None) -> Result:
        """Run ``job``; ``limits`` default to the sandbox's own.

        If the sandbox fails, also after its own retries, the verdict is ``INFRA``.  Nothing that a program does raises
        an exception here.
        """
        ...

    def describe(self) -> Mapping[str, object]:
        """The isolation of programs, for a run's metadata: JSON with at least ``unsafe`` (bool) and ``isolation``."""
        ...

    async def close(self) -> None:
        """End all workers; no run is possible afterwards."""
        ...


async def run_all(sandbox: Sandbox, jobs: Iterable[Job], limits: Limits | None = None) -> list[Result]:
    """Run the jobs, as many at a time as the sandbox has workers; returns the results in the order of the jobs."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sandbox.run(job, limits)) for job in jobs]
    return [task.result() for task in tasks]


def jobs_of_inputs(source: str, inputs: Iterable[str], *, seed: int = 0) -> list[Job]:
    """One program with several standard inputs, each in its own process."""
    return [Job(source, stdin, seed=seed) for stdin in inputs]


def jobs_of_calls(source: str, calls: Iterable[Call], *, seed: int = 0) -> list[Job]:
    """One program and several calls of its functions, each in its own process."""
    return [Job(source, entry=call, seed=seed) for call in calls]
