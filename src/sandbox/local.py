"""A pool of worker processes on this machine."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal, Self

from . import selftest
from .guest.kernel import landlock_abi
from .jobs import Job, Limits, Result, SandboxUnavailable, Verdict
from .launch import Isolation, LaunchPlan, plan
from .worker import Worker, WorkerDied

_log = logging.getLogger(__name__)
_ATTEMPTS: Final = 3

STANDARD_IMPORTS: Final = tuple(
    """abc array ast asyncio base64 bisect calendar cmath collections contextlib copy csv dataclasses datetime decimal
    enum fractions functools hashlib heapq io itertools json keyword math numbers operator os pprint queue random re
    statistics string struct sys textwrap threading time traceback types typing unicodedata uuid""".split()
)
"""The modules that programs import most: loaded once by the worker, not by every run."""


class LocalSandbox:
    """Workers on this machine, each a fork server that runs one program at a time, started when first needed.

    ``workers`` is the number of programs that run at the same time; further runs wait.  ``imports`` ("numpy", for
    example) are loaded by the workers in advance; programs can import no other installed package.  ``limits`` apply to
    runs without limits of their own.  ``isolation=auto`` is bubblewrap where it works, else Landlock and seccomp alone;
    any other isolation is required.  If a worker cannot be isolated or fails its self-test,
    :class:`SandboxUnavailable` is raised, unless ``allow_unsafe_execution`` is true: then programs run with the layers
    that are available, a warning is logged, and :meth:`describe` says ``unsafe``.  Where isolation works, that flag has
    no effect.

    A copy of a sandbox is the sandbox itself, so that copies of a world share its workers.  Several event loops may use
    it, one after the other.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        imports: Sequence[str] = (),
        limits: Limits | None = None,
        isolation: Literal["auto", "bubblewrap", "landlock"] = "auto",
        allow_unsafe_execution: bool = False,
    ) -> None:
        if sys.platform != "linux":
            raise SandboxUnavailable(f"the sandbox needs Linux (Landlock, seccomp), this is {sys.platform}")
        if workers < 1:
            raise ValueError(f"sandbox workers must be at least 1, got {workers}")
        if isolation not in ("auto", "bubblewrap", "landlock"):
            raise ValueError(f"sandbox isolation must be auto, bubblewrap or landlock, got {isolation!r}")
        self.workers = workers
        self.limits = limits or Limits()
        self.verdicts: Counter[Verdict] = Counter()
        """The number of runs by verdict; ``INFRA`` counts after the last attempt only."""
        self.restarts = 0
        """The number of workers that died and were replaced."""
        self._imports = (*STANDARD_IMPORTS, *imports)
        self._isolations: tuple[Isolation, ...] = ("bubblewrap", "landlock") if isolation == "auto" else (isolation,)
        self._allow_unsafe = allow_unsafe_execution
        self._plan: LaunchPlan | None = None
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def start(self) -> None:
        """Choose the isolation that works and start the first worker; otherwise the first run does it.

        Raises :class:`SandboxUnavailable`.
        """
        async with self._turn():
            if self._plan is None:
                worker = await self._first()
                self._idle.append(worker)

    async def run(self, job: Job, limits: Limits | None = None) -> Result:
        """Run ``job`` in its own process; waits for a free worker.

        If the worker dies, it is replaced and the run repeated; after three attempts the verdict is ``INFRA``.  Raises
        :class:`SandboxUnavailable` if no worker can be started, ``TypeError`` if arguments are not JSON.
        """
        await self.start()
        limits = limits or self.limits
        result = Result(Verdict.INFRA)
        for _ in range(_ATTEMPTS):
            async with self._worker() as worker:
                try:
                    result = await worker.run(job, limits)
                except WorkerDied as error:
                    self.restarts += 1
                    result = Result(Verdict.INFRA, detail=str(error))
                    _log.warning("a sandbox worker died and is replaced: %s", error)
            if result.verdict is not Verdict.INFRA:
                break
        self.verdicts[result.verdict] += 1
        return result

    def describe(self) -> dict[str, object]:
        """The isolation of programs, as JSON for a run's metadata.  Raises ``RuntimeError`` before the first start."""
        if self._plan is None:
            raise RuntimeError("the sandbox is not started: await its start() first")
        layers: Mapping[str, bool] = {
            "bubblewrap": self._plan.isolation == "bubblewrap",
            "landlock": self._plan.landlock,
            "seccomp": bool(self._plan.seccomp),
            "cgroup": self._plan.cgroups is not None,
        }
        return {
            "isolation": self._plan.isolation,
            "unsafe": self._plan.isolation == "unsafe",
            "layers": [name for name, applies in layers.items() if applies],
            "landlock_abi": landlock_abi(),
            "runs_as_nobody": self._plan.user is not None,
            "workers": self.workers,
        }

    async def close(self) -> None:
        """End all workers; runs in progress raise ``RuntimeError``."""
        self._closed = True
        for worker in self._busy:
            worker.kill()  # its run closes it
        for worker in self._idle:
            worker.close()
        self._idle.clear()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the sandbox is closed")

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Hold the lock of the running event loop under which workers are started."""
        self._check_open()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._starting = loop, asyncio.Lock()
            self._free = asyncio.Semaphore(self.workers)
        async with self._starting:
            yield

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[Worker]:
        """A worker for one run: an idle one or a new one; idle again afterwards if it is alive."""
        async with self._free:
            self._check_open()
            assert self._plan is not None, "start() comes before the first worker"
            worker = self._rested() or await self._fresh(self._plan)
            self._busy.add(worker)
            try:
                yield worker
            finally:
                self._busy.discard(worker)
                if worker.alive and not self._closed:
                    self._idle.append(worker)
                else:
                    worker.close()

    def _rested(self) -> Worker | None:
        """An idle worker; workers that died while idle are replaced, and no run fails because of them."""
        while self._idle:
            worker = self._idle.pop()
            if not worker.ended:
                return worker
            worker.close()
            self.restarts += 1
            _log.warning("an idle sandbox worker had ended and is replaced")
        return None

    async def _first(self) -> Worker:
        """The first worker, with the strongest isolation that works; sets the plan."""
        reasons = []
        for isolation in self._isolations:
            try:
                candidate = plan(isolation, self._imports)
                worker = await self._fresh(candidate)
            except SandboxUnavailable as error:
                reasons.append(str(error))
                continue
            if reasons:
                _log.warning("the sandbox runs with %s: %s", isolation, "; ".join(reasons))
            self._plan = candidate
            return worker
        if not self._allow_unsafe:
            raise SandboxUnavailable(f"{'; '.join(reasons)}. Nothing untrusted is run without isolation")
        candidate = plan("unsafe", self._imports)
        worker = await self._fresh(candidate)
        _log.warning("UNSAFE: untrusted programs run without full isolation (%s)", "; ".join(reasons))
        self._plan = candidate
        return worker

    async def _fresh(self, plan: LaunchPlan) -> Worker:
        worker = Worker(plan)
        try:
            await worker.ready()
            await (selftest.check_function if plan.isolation == "unsafe" else selftest.check)(worker)
        except BaseException as error:
            worker.close()
            if isinstance(error, WorkerDied | OSError):  # OSError: no room for the self-test's files
                raise SandboxUnavailable(f"{plan.isolation} sandbox: {error}") from error
            raise
        return worker
