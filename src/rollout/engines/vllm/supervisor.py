"""Keeps one process of vLLM running: one that ends or hangs is replaced by another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ..base import EngineClosedError, EngineError
from .digest import WeightsMismatchError
from .server import EngineDiedError, EngineServer

T = TypeVar("T")
log = logging.getLogger(__name__)


class EngineSupervisor:
    """``start``s a process, and another in its place where it ends, which serves once it is ``ready``.

    ``allowed`` is how often it may be replaced, ``restarts`` how often it was.
    """

    def __init__(
        self, start: Callable[[], EngineServer], ready: Callable[[EngineServer], Awaitable[None]], allowed: int
    ) -> None:
        self._start, self._ready, self._allowed = start, ready, allowed
        self.server = start()
        self.restarts = 0
        self._restart: asyncio.Task[None] | None = None
        self._closed = False
        # A thread that lives as long as the engine: Linux ends the process with the thread that started it.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="vllm-start")

    async def with_restarts(self, work: Callable[[EngineServer], Awaitable[T]]) -> T:
        """The result of ``work`` by a process that lives; asked of the next one where it dies meanwhile.

        Raises :class:`..base.EngineError` once no restart is left, :class:`..base.EngineClosedError`.
        """
        while True:
            await self.settled()
            server = self.server
            try:
                return await work(server)
            except EngineDiedError as error:
                if server is self.server and (self._restart is None or self._restart.done()):
                    self._restart = asyncio.create_task(self._replace(error))

    async def settled(self) -> None:
        """Until no restart is under way, which a caller that goes away does not end.  Raises what it raised."""
        if self._restart is not None and not self._restart.done():
            await asyncio.wait({self._restart})
        if self._closed:
            raise EngineClosedError("the engine was closed")
        if self._restart is not None:
            self._restart.result()

    async def _replace(self, died: EngineError) -> None:
        while self.restarts < self._allowed:
            self.restarts += 1
            log.warning("%s; restart %d of %d", died, self.restarts, self._allowed)
            self.server.shutdown()
            try:
                self.server = await self._another()
                return
            except WeightsMismatchError:
                raise
            except EngineError as error:  # it did not start, or died; the next one may not
                died = error
        raise EngineError(f"{died}; engine.restarts={self._allowed} allows no other") from died

    async def _another(self) -> EngineServer:
        """A process that is ready, started in a thread: it takes seconds or minutes."""
        starting = self._starter.submit(self._start)
        try:
            server = await asyncio.wrap_future(starting)
            await self._ready(server)
            return server
        except BaseException:
            starting.add_done_callback(_shut_down)
            raise

    def close(self) -> None:
        """End the process."""
        self._closed = True
        if self._restart is not None:
            self._restart.cancel()
        self._starter.shutdown(wait=False)
        self.server.shutdown()


def _shut_down(starting: Future[EngineServer]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().shutdown()
