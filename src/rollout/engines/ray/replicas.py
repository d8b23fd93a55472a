"""Engines with the same weights in actors, in the place of one engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from torch import Tensor

from ....cluster.actors import connected
from ....cluster.execution import Execution
from ..base import Engine
from ..replicas import Replicas
from .engine import RayEngine, stored


class RayReplicas(Replicas):
    """Of engines in actors, each of which is replaced where it is lost (:class:`.engine.RayEngine`)."""

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
