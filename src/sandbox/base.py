"""What can be asked of a sandbox, and what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, Protocol, runtime_checkable

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]


class SandboxUnavailable(RuntimeError):
    """This machine cannot run untrusted programs safely; the message says what is missing."""


class Verdict(StrEnum):
    """How a run ended.  ``OK`` means that it ended by itself, never that its answer is right."""

    OK = "ok"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    FORBIDDEN = "forbidden"
    CRASH = "crash"
    INFRA = "infra"
    """The sandbox failed, not the program: nothing is known about it, and it earns no reward, not even 0."""


@dataclass(frozen=True)
class Limits:
    """What one run may use.

    ``cpu_s`` is CPU time of all its threads and is what is judged; ``idle_s`` is wall time in which it neither
    computes nor waits for a core (sleeping, waiting).  ``memory_mib`` is address space above the worker's own.
    Standard output and a value beyond their bytes end the run; of standard error the first ``stderr_bytes`` are kept,
    and sixteen times as many end the run.
    """

    cpu_s: float = 2.0
    idle_s: float = 2.0
    memory_mib: int = 512
    stdout_bytes: int = 1 << 18
    stderr_bytes: int = 1 << 16
    value_bytes: int = 1 << 18

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"sandbox limit {name} must be above 0, got {value}")

    @property
    def backstop_s(self) -> float:
        """Wall time after which a run that the machine starved of CPU time is given up, as ``INFRA``."""
        return 30 + 10 * (self.cpu_s + self.idle_s)


@dataclass(frozen=True)
class Call:
    """Call what ``function`` names in the program; a dotted name leads into a class, which is instantiated:
    "Solution.solve" is ``Solution().solve``."""

    function: str
    args: Sequence[JsonValue] = ()
    kwargs: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Expression:
    """Evaluate one Python expression among the program's names and the ``variables``."""

    text: str
    variables: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One run of one program.

    Without ``entry`` the program runs as ``__main__`` from ``stdin`` to stdout.  With one it runs as a module, and the
    value of the call or expression comes back as JSON.  ``seed`` seeds ``random`` (and NumPy where it is imported).
    There is no place here for an expected answer: it must never enter a process that runs a program.
    """

    source: str = ""
    stdin: str = ""
    entry: Call | Expression | None = None
    seed: int = 0


class Missing(Enum):
    """The absence of a value; equal to nothing that JSON can hold."""

    VALUE = "no value"


NO_VALUE: Final = Missing.VALUE


@dataclass(frozen=True)
class Result:
    """What a run did.  All of it is data from an untrusted source.

    ``value`` is what a call or expression gave, parsed from JSON, or ``NO_VALUE`` where the run wrote none or anything
    but one JSON document.  ``exit_code`` or ``signal`` is ``None`` where the other applies.  ``cpu_s``, ``wall_s`` in
    seconds, ``peak_bytes`` of memory above the worker's own.  ``detail`` says in words what led to the verdict.
    """

    verdict: Verdict
    stdout: bytes = b""
    stderr: bytes = b""
    value: JsonValue | Missing = NO_VALUE
    exit_code: int | None = None
    signal: int | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_bytes: int = 0
    stderr_truncated: bool = False
    detail: str = ""

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are no UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def errors(self) -> str:
        """Standard error as text; bytes that are no UTF-8 become U+FFFD."""
        return self.stderr.decode("utf-8", "replace")


@runtime_checkable
class Sandbox(Protocol):
    """A place where untrusted programs run: workers on this machine, or a service elsewhere."""

    async def run(self, job: Job, limits: Limits | None = None) -> Result:
        """Run ``job``; ``limits`` default to the sandbox's own.

        A failure of the sandbox is the verdict ``INFRA`` after its own retries; what a program does never raises.
        """
        ...

    def describe(self) -> Mapping[str, object]:
        """What protects the trainer, for a run's metadata: JSON, with at least ``unsafe`` (bool) and ``isolation``."""
        ...

    async def close(self) -> None:
        """End all workers; no run may follow."""
        ...


async def run_all(sandbox: Sandbox, jobs: Iterable[Job], limits: Limits | None = None) -> list[Result]:
    """Run the jobs as many at a time as the sandbox has workers; the results in the order of the jobs."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sandbox.run(job, limits)) for job in jobs]
    return [task.result() for task in tasks]


def jobs_of_inputs(source: str, inputs: Iterable[str], *, seed: int = 0) -> list[Job]:
    """One program on many standard inputs, each in a process of its own."""
    return [Job(source, stdin, seed=seed) for stdin in inputs]


def jobs_of_calls(source: str, calls: Iterable[Call], *, seed: int = 0) -> list[Job]:
    """One program and many calls of its functions, each in a process of its own."""
    return [Job(source, entry=call, seed=seed) for call in calls]
