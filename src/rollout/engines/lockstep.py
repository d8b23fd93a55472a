"""Rounds: when engines in lockstep decode, so that a run does not depend on timing.

Which requests share a batch changes the last bits of their logits, and then, rarely, a token.  In free running that is
decided by which world, thread or server happened to be quicker.  Lockstep takes time out of it: all lockstep engines of
an event loop decode in common rounds.  A round begins when the loop has come to rest: no engine decodes, nobody is
inside :func:`hold`, and many passes of the loop brought no new request.  Then every engine decodes all requests that
wait for it, in the order of ``Request.key``, and requests that arrive meanwhile wait for the next round.

This cannot deadlock: a round waits for no particular client, so one that never asks, ends early or fails holds nobody
up, and a request inside ``hold()``, which would wait for itself, is an error.  What happens outside the loop (a sandbox
process, a thread) is invisible to it: wrap such an await in ``hold()``, or the request that follows may fall into this
round or the next, depending on timing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol
from weakref import WeakKeyDictionary

# A result passes through a few layers of tasks and gathers, one pass each, before the next request; this is far more.
_PASSES = 40


class LockstepEngine(Protocol):
    """An engine, as a round sees it."""

    async def serve_round(self) -> None:
        """Serve all requests that wait; hand every error to their callers and raise none."""
        ...


class Rounds:
    """The common rounds of one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[LockstepEngine, None] = {}  # in the order in which they joined
        self._activity = self._holds = 0
        self._released = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def join(self, engine: LockstepEngine) -> None:
        """``engine`` has requests to serve in the next round."""
        self._activity += 1
        self._waiting[engine] = None
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="lockstep rounds")

    @contextmanager
    def hold(self) -> Iterator[None]:
        """No round begins inside."""
        self._holds += 1
        self._released.clear()
        try:
            yield
        finally:
            self._holds -= 1
            self._activity += 1
            if not self._holds:
                self._released.set()

    async def _run(self) -> None:
        while self._waiting:
            await self._rest()
            engines, self._waiting = list(self._waiting), {}
            await asyncio.gather(*(engine.serve_round() for engine in engines))

    async def _rest(self) -> None:
        """Until the loop has come to rest."""
        quiet_passes, activity = 0, self._activity
        while quiet_passes < _PASSES:
            if self._holds:
                await self._released.wait()
            await asyncio.sleep(0)
            quiet_passes = quiet_passes + 1 if self._activity == activity and not self._holds else 0
            activity = self._activity


_ROUNDS: WeakKeyDictionary[asyncio.AbstractEventLoop, Rounds] = WeakKeyDictionary()


def rounds() -> Rounds:
    """The rounds of the running event loop."""
    return _ROUNDS.setdefault(asyncio.get_running_loop(), Rounds())


class _Hold:
    """Whether a ``hold()`` is still open, for the tasks that began inside."""

    open = True


_hold: ContextVar[_Hold | None] = ContextVar("hold", default=None)


def inside_hold() -> bool:
    """Whether the caller is inside :func:`hold`."""
    innermost = _hold.get()
    return innermost is not None and innermost.open


@contextmanager
def hold() -> Iterator[None]:
    """Keep lockstep engines from decoding while something outside the event loop is awaited.

    ``with hold(): await env.step(...)``.  An engine's ``generate`` inside is an error.
    """
    mine = _Hold()
    token = _hold.set(mine)
    try:
        with rounds().hold():
            yield
    finally:
        mine.open = False
        _hold.reset(token)
