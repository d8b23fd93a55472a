"""Engines in actors: the proxy of one in the process of the run, and of several with the same weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from importlib import import_module
from typing import Any

from torch import Tensor

from ....cluster.actors import (
    Answer,
    LostActorError,
    RemoteActor,
    StoredWeights,
    answer_of,
    connected,
    packed,
    sendable,
    settle,
    unpacked,
)
from ....cluster.execution import Execution
from ....experience import Completion, Request
from ..base import Engine, EngineClosedError, EngineError, Weightless
from ..lockstep import inside_hold, rounds
from ..replicas import Replicas
from ..requests import in_time, order


class RayEngine:
    """The engine that ``build`` makes in an actor; it must be fit for pickle.

    With ``lockstep`` the requests of a round go there together, where they are one round of that engine: the same
    batches as in the run's process.

    An actor that is lost is replaced, at most ``execution.restarts`` times: a new one gets the weights that the old one
    had, as they are in the object store, and the requests that were under way, whose seeds draw the same tokens.
    ``faults/engine_restarts`` counts it.  Raises :class:`....cluster.actors.LostActorError` where the weights are lost,
    too.
    """

    def __init__(self, name: str, build: Callable[[], Engine], execution: Execution, lockstep: bool) -> None:
        self.lockstep = lockstep
        self._arrived: list[tuple[Request, asyncio.Future[list[Completion]]]] = []
        self._loaded: dict[str, tuple[StoredWeights, int]] = {}
        self._state: Mapping[str, Any] = {}
        self._asleep = self._closed = False
        self._reported = 0
        each = execution.resources.engine
        self.actor = RemoteActor(f"engine of {name}", EngineActor, each, execution, build, self._restore)

    def _restore(self) -> list[tuple[Any, ...]]:
        """The calls that make a new engine the one that was lost."""
        state: list[tuple[Any, ...]] = [("do", "load_state_dict", self._state)] if self._state else []
        loads = [("load", policy, each.reference, version) for policy, (each, version) in self._loaded.items()]
        return [*state, *loads, *([("do", "sleep")] if self._asleep else [])]

    # ---- the interface ----------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> list[Completion]:
        """See :class:`..base.Engine`.  Raises as the engine in the actor does."""
        if self._closed:
            raise EngineClosedError("generate() after close()")
        if not self.lockstep:
            return await in_time(request, asyncio.ensure_future(self._one(request)))
        if inside_hold():
            raise RuntimeError("generate() inside hold() would wait for itself")
        answer: asyncio.Future[list[Completion]] = asyncio.get_running_loop().create_future()
        self._arrived.append((request, answer))
        rounds().join(self)
        return await in_time(request, answer)

    async def serve_round(self) -> None:
        """See :class:`..lockstep.LockstepEngine`."""
        arrived, self._arrived = sorted(self._arrived, key=lambda job: order(job[0])), []
        arrived = [job for job in arrived if not job[1].done()]
        try:
            answers = await self._serve([request for request, _ in arrived])
        except Exception as error:  # whatever it is, nobody may wait for ever
            answers = [(None, error)] * len(arrived)
        for (_, waiting), (completions, failed) in zip(arrived, answers, strict=True):
            if waiting.done():
                continue
            if failed is not None:
                waiting.set_exception(failed)
            else:
                waiting.set_result(completions)

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """See :class:`..base.Engine`.  Of weights that are stored already only the reference goes through here."""
        weights = stored(self.actor.group.ray, weights)
        metrics: Mapping[str, float] = await self.actor.ask("load", policy, weights.reference, version)
        self._loaded[policy] = weights, version
        return metrics

    async def forget(self) -> None:
        """See :class:`..base.Remembering`.  A new actor has nothing to forget."""
        await self.actor.ask("do", "forget")

    async def sleep(self) -> None:
        self._asleep = True
        await self.actor.ask("do", "sleep")

    async def wake(self) -> Mapping[str, float]:
        self._asleep = False
        metrics: Mapping[str, float] = await self.actor.ask("do", "wake")
        return metrics

    async def close(self) -> None:
        """The engine in the actor is closed first: it may have processes and files.  May be called twice."""
        if not self._closed:
            self._closed = True
            await self.actor.end("do", "close")

    def drain(self) -> dict[str, float]:
        """The counts of the engine in the actor, and ``faults/engine_restarts``; those of a lost actor are lost."""
        restarts, self._reported = self.actor.restarts - self._reported, self.actor.restarts
        counts = self.actor.at_once("do", "drain") or {}
        return {**counts, **({"faults/engine_restarts": restarts} if restarts else {})}

    def state_dict(self) -> dict[str, Any]:
        """Of the engine in the actor; {} where it has none."""
        self._state = self.actor.at_once("do", "state_dict") or self._state
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._state = state
        self.actor.at_once("do", "load_state_dict", state)

    async def borrowed(self) -> Engine:
        """For clients in other processes."""
        return BorrowedEngine(await self.actor.present())

    async def replaced(self, borrowed: Engine) -> bool:
        """Whether another is there now than was ``borrowed``; one that is lost is replaced first."""
        assert isinstance(borrowed, BorrowedEngine)
        await self.actor.ask("do", "state_dict")
        return await self.actor.present() is not borrowed.handle

    # ---- the actor --------------------------------------------------------------------------------------------------

    async def _one(self, request: Request) -> list[Completion]:
        ((completions, error),) = await self._serve([request])
        if error is not None:
            raise error
        return completions

    async def _serve(self, requests: Sequence[Request]) -> list[Answer]:
        # The clock of a deadline is this process's.
        answers: list[Answer] = await self.actor.ask("serve", [_sent(request) for request in requests])
        return answers


def _sent(request: Request) -> Request:
    """``request`` without what is of this process: its clock, and who is told tokens."""
    return replace(request, deadline=None, on_token=None)


def stored(ray: Any, weights: Mapping[str, Tensor]) -> StoredWeights:
    """``weights`` in the object store of ``ray``, where they may be already."""
    return weights if isinstance(weights, StoredWeights) else StoredWeights(ray.put(packed(weights)))


class BorrowedEngine(Weightless):
    """The present actor of a :class:`RayEngine`, in a process that only generates with it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    async def generate(self, request: Request) -> list[Completion]:
        """See :class:`..base.Engine`.  Raises :class:`....cluster.actors.LostActorError`."""
        try:
            (((completions, failed),), _) = await self.handle.serve.remote([_sent(request)])
        except import_module("ray").exceptions.RayActorError as lost:
            raise LostActorError("an engine has ended") from lost
        if failed is not None:
            raise failed
        generated: list[Completion] = completions
        return generated

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        raise TypeError("weights are loaded by the run's process")

    async def close(self) -> None:
        """The run's process ends it."""


class EngineActor:
    """The process of an engine.  Its methods are asynchronous, so that calls wait for each other as the engine's do."""

    async def begin(self, build: Callable[[], Engine], folder: str, threads: int) -> Answer:
        """Build the engine."""
        settle(folder, threads)

        async def work() -> None:
            self.engine = build()

        return await answer_of(work(), EngineError)

    async def serve(self, requests: Sequence[Request]) -> Answer:
        """The completions, or the error, of each request; they arrive in one pass of the event loop."""
        results = await asyncio.gather(*map(self.engine.generate, requests), return_exceptions=True)
        return [
            (None, sendable(each, EngineError)) if isinstance(each, Exception) else (each, None) for each in results
        ], None

    async def load(self, policy: str, weights: Any, version: int) -> Answer:
        return await answer_of(self.engine.load(policy, unpacked(weights), version), EngineError)

    async def do(self, method: str, *arguments: Any) -> Answer:
        """Call a method of the engine that not every engine has; {} where it does not."""

        async def work() -> Any:
            result: Any = getattr(self.engine, method, lambda *_: {})(*arguments)
            return await result if asyncio.iscoroutine(result) else result

        return await answer_of(work(), EngineError)


class RayReplicas(Replicas):
    """Of engines in actors, each of which is replaced where it is lost (:class:`RayEngine`)."""

    def __init__(self, engines: Sequence[RayEngine], lockstep: bool) -> None:
        super().__init__(engines, lockstep)
        self.actors = list(engines)

    @classmethod
    def start(
        cls, name: str, build: Callable[[], Engine], execution: Execution, lockstep: bool, count: int
    ) -> RayReplicas:
        """``count`` of them, side by side, since an engine may take minutes.  Raises as one does."""
        connected(execution)  # once, before all
        with ThreadPoolExecutor(count) as threads:
            names = [f"{name}, replica {index}" for index in range(count)]
            starts = [threads.submit(RayEngine, each, build, execution, lockstep) for each in names]
            wait(starts)
            if any(start.exception() for start in starts):
                for start in starts:
                    if start.exception() is None:
                        threads.submit(asyncio.run, start.result().close())
        return cls([start.result() for start in starts], lockstep)

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """See :class:`..base.Engine`; the object store has the weights once."""
        return await super().load(policy, stored(self.actors[0].actor.group.ray, weights), version)

    async def borrowed(self) -> Replicas:
        """For clients in other processes."""
        return Replicas([await engine.borrowed() for engine in self.actors], lockstep=False)

    async def replaced(self, borrowed: Engine) -> bool:
        """Whether others are there now than were ``borrowed``."""
        assert isinstance(borrowed, Replicas)
        pairs = zip(self.actors, borrowed.engines, strict=True)
        return any([await engine.replaced(before) for engine, before in pairs])
