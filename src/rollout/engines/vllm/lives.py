"""The lives of one engine: a process that dies or hangs is succeeded by another with the same weights, proven alike."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from transformers import PreTrainedTokenizerBase

from ..base import EngineClosedError, EngineError
from . import canary
from .believed import Believed
from .digest import WeightsMismatchError, compare
from .launch import VllmSettings
from .replies import Replies
from .server import EngineDiedError, Server

T = TypeVar("T")
log = logging.getLogger(__name__)


class Lives:
    """Starts a process with what is ``believed``, proves that it computes with it, and starts another where it ends.

    The canary may be ``canary_nats`` apart.  See :func:`.launch.start` for what the constructor raises.
    """

    def __init__(
        self, believed: Believed, tokenizer: PreTrainedTokenizerBase, settings: VllmSettings, canary_nats: float
    ) -> None:
        self.believed, self.settings, self.canary_nats = believed, settings, canary_nats
        self.replies = Replies(believed.model, tokenizer)
        self._given = believed, tokenizer, self.replies, settings
        self.server = Server(*self._given)
        self.restarts = 0
        self._whole = False  # whether the model's own weights are proven
        self._change = asyncio.Lock()
        self._over: RuntimeError | None = None
        self._successions: set[asyncio.Task[None]] = set()
        # A thread that lives as long as the engine: Linux ends the process with the thread that started it.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="vllm-start")

    # ---- succession -------------------------------------------------------------------------------------------------

    async def steady(self, work: Callable[[Server], Awaitable[T]]) -> T:
        """The result of ``work`` by a process that lives; asked of its successor where it dies meanwhile."""
        while True:
            async with self._change:
                if self._over is not None:
                    raise self._over
                server = self.server
            try:
                return await work(server)
            except EngineDiedError as error:
                await self.succeed(server, error)

    async def succeed(self, server: Server, died: EngineError) -> None:
        """Put a proven process in the place of ``server``, unless that has happened.

        A caller that goes away meanwhile ends nothing for the others.  Raises :class:`..base.EngineError` where
        ``engine.restarts`` are used up.
        """
        task = asyncio.create_task(self._succeed(server, died))
        self._successions.add(task)
        task.add_done_callback(self._successions.discard)
        await asyncio.wait({task})
        if self._over is not None and task.cancelled():  # by end()
            raise self._over
        task.result()

    async def _succeed(self, server: Server, died: EngineError) -> None:
        async with self._change:
            while server is self.server:
                if self._over is None and self.restarts >= self.settings.restarts:
                    self._over = EngineError(f"{died}; engine.restarts={self.settings.restarts} allows no other")
                if self._over is not None:
                    raise self._over from died
                self.restarts += 1
                log.warning("%s; restart %d of %d", died, self.restarts, self.settings.restarts)
                self.server.shutdown()
                self._whole = False
                self.believed.doubt()
                try:
                    self.server = await self._successor()
                except EngineDiedError as error:
                    died = error
                except EngineError as error:
                    self._over = error
                    raise

    async def _successor(self) -> Server:
        server = await self._started()
        try:
            await self._prove(server)
        except BaseException:
            server.shutdown()
            raise
        return server

    async def _started(self) -> Server:
        """Another process, started aside: it takes seconds or minutes."""
        future = self._starter.submit(Server, *self._given)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_unwanted)
            raise
        except EngineError as error:  # it did not start; it may next time
            raise EngineDiedError(str(error)) from error

    def end(self) -> None:
        """End the process."""
        self._over = EngineClosedError("the engine was closed")
        for task in self._successions:
            task.cancel()
        self._starter.shutdown(wait=False)
        self.server.shutdown()

    # ---- proof ------------------------------------------------------------------------------------------------------

    async def prove(self) -> None:
        """Compare the process with what is believed, once for each weights.

        Raises :class:`.digest.WeightsMismatchError` naming the policy.
        """
        if not (self._whole and all(belief.apart <= self.canary_nats for belief in self.believed.policies.values())):
            await self.steady(self._prove)

    async def renew(self, policy: str) -> dict[str, float]:
        """Give the process the weights that are believed of ``policy``; what the canary measured, as :meth:`wake`.

        Nothing may be under way.  Of a process that sleeps the digests are compared here, and the canary sings in
        :meth:`wake`.  Raises as :meth:`prove`.
        """
        await self.steady(lambda server: self._renew(server, policy))
        return {} if self.server.lent else {"canary_nats": self.believed.policies[policy].apart}

    async def _renew(self, server: Server, policy: str) -> None:
        belief = self.believed.policies[policy]
        belief.apart = math.inf
        await server.wake("weights")
        if belief.slot:
            await self._restore(server)
            await server.adapt(belief)
            belief.given = True
            self.believed.doubt_bare()
        else:
            self._whole = False
            await server.replace()
        if server.lent:
            return await self._compare(server)
        await server.forget(policy)
        await self._prove(server)

    async def _prove(self, server: Server) -> None:
        await self._compare(server)
        for policy, belief in self.believed.policies.items():
            if not belief.apart <= self.canary_nats:
                belief.apart = await self._apart(server, policy)

    async def _compare(self, server: Server) -> None:
        """The digests of what is not proven."""
        if not self._whole:
            compare(self.believed.label, self.believed.digests, await server.digests())
            self._whole = True
        for policy, belief in self.believed.policies.items():
            if belief.slot and not belief.given:
                await server.adapt(belief)
                belief.given = True
            if self.believed.room and not belief.apart <= self.canary_nats:
                compare(policy, belief.digests, await server.adapter_digests(belief))

    async def _apart(self, server: Server, policy: str) -> float:
        """How far the canary is apart, in nats.  Raises :class:`.digest.WeightsMismatchError` where it is too far."""
        belief, believed = self.believed.policies[policy], self.believed
        songs = await server.sing(policy, believed.sequences, believed.vocabulary)
        name = f"policy '{policy}', version {belief.version}"
        if remembered := sum(song.remembered for song in songs):
            raise WeightsMismatchError(
                f"{name}: the engine's cache of prefixes still holds {remembered} tokens read with other weights"
            )
        apart = canary.difference(belief.expected, songs)
        if not apart <= self.canary_nats:
            raise WeightsMismatchError(
                f"{name}: log-probabilities of engine and learner differ by {apart:.3g} nats on fixed sequences, "
                f"more than engine.canary_nats={self.canary_nats:g}"
            )
        return apart

    # ---- sleep ------------------------------------------------------------------------------------------------------

    async def sleep(self) -> None:
        """Lend the process's memory, where there is a GPU's.  Nothing may be under way."""
        await self.steady(self._sleep)

    async def _sleep(self, server: Server) -> None:
        try:
            await server.sleep()
        except BaseException:  # nobody knows what it has lent by then
            server.kill()
            raise
        if server.lost:
            self._whole = False
            self.believed.doubt()
        elif server.lent:
            self.believed.doubt_speech()

    async def wake(self) -> dict[str, float]:
        """Take the memory back and prove what is in it; the largest ``canary_nats``, nothing where all was awake.

        Raises as :meth:`prove`.
        """
        if not self.server.lent:
            return {}
        await self.steady(self._wake)
        return {"canary_nats": max(belief.apart for belief in self.believed.policies.values())}

    async def _wake(self, server: Server) -> None:
        await server.wake("weights")
        await self._restore(server)
        await server.wake("kv_cache")  # after the transfer, which needs memory too
        await server.forget(self.believed.label)
        await self._prove(server)

    async def _restore(self, server: Server) -> None:
        """The model's own weights and nothing else, where they are lost."""
        if server.lost:
            await server.clear()
            await server.replace()


def _unwanted(future: Future[Server]) -> None:
    """End a process that nobody waits for any more."""
    if future.exception() is None:
        future.result().shutdown()
