"""Several engines with the same weights in the place of one: data parallel generation."""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar, cast

from torch import Tensor
from transformers import PreTrainedModel

from ...experience import Completion, Request
from .base import Engine, EngineClosedError, Remembering, drain_counters, largest
from .lockstep import inside_hold, rounds
from .lora import Adapted
from .requests import in_time, order

T = TypeVar("T")

REMEMBERED = 4096
"""Tasks whose engine is known, at most; of more, those that asked longest ago are forgotten."""


class Replicas:
    """Each request goes to one of ``engines``; new weights go to all.

    What a request draws depends on its seed, not on the engine.  The requests of one task go to one engine, whose cache
    of prefixes then has what they begin with, while it has at most twice as many completions under way as the least
    busy one, this request's included.  Under ``lockstep``, which is the engines' too, engines are chosen in rounds (see
    :mod:`.lockstep`), in the order of ``Request.key``, so that time has no part in it.
    """

    def __init__(self, engines: Sequence[Engine], lockstep: bool) -> None:
        self.engines, self.lockstep = list(engines), lockstep
        self._under_way = [0] * len(self.engines)
        self._places: OrderedDict[object, int] = OrderedDict()  # of the requests of each task, since the last weights
        self._arrived: list[tuple[Request, asyncio.Future[int]]] = []
        self._closed = False

    async def generate(self, request: Request) -> list[Completion]:
        """See :class:`.base.Engine`.  Raises as the engines do."""
        if self._closed:
            raise EngineClosedError("generate() after close()")
        choice: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if not self.lockstep:
            choice.set_result(self._choose(request))
        elif inside_hold():
            raise RuntimeError("generate() inside hold() would wait for itself")
        else:
            self._arrived.append((request, choice))
            rounds().join(self)
        try:
            index = await in_time(request, choice)
            return await self.engines[index].generate(request)
        finally:
            if choice.done() and not choice.cancelled():
                self._under_way[choice.result()] -= request.n

    async def serve_round(self) -> None:
        """See :class:`.lockstep.LockstepEngine`: the requests join the next round of their engines."""
        arrived, self._arrived = self._arrived, []
        for request, choice in sorted(arrived, key=lambda each: order(each[0])):
            if not choice.done():  # whose caller has gone
                choice.set_result(self._choose(request))

    def _choose(self, request: Request) -> int:
        task, busy = request.key[:1] or request.prompt_ids, self._under_way
        least = busy.index(min(busy))
        place = self._places.get(task, least)
        if busy[place] + request.n > 2 * (busy[least] + request.n):
            place = least
        self._places[task] = place
        self._places.move_to_end(task)
        if len(self._places) > REMEMBERED:
            self._places.popitem(last=False)
        busy[place] += request.n
        return place

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """See :class:`.base.Engine`.  Every engine has finished, also where one fails; a metric is its largest."""
        self._places.clear()  # as the engines' caches are
        return largest(await _all(engine.load(policy, weights, version) for engine in self.engines))

    async def forget(self) -> None:
        """See :class:`.base.Remembering`: which engine is asked depends on no request of before, either."""
        self._places.clear()
        await _all(engine.forget() for engine in self.engines if isinstance(engine, Remembering))

    async def sleep(self) -> None:
        """See :class:`.base.Engine`."""
        await _all(engine.sleep() for engine in self.engines)

    async def wake(self) -> Mapping[str, float]:
        """See :class:`.base.Engine`.  A metric is the largest of the engines'."""
        return largest(await _all(engine.wake() for engine in self.engines))

    async def close(self) -> None:
        """Close every engine, whatever fails.  May be called twice, as theirs."""
        self._closed = True
        async with AsyncExitStack() as closing:
            for engine in self.engines:
                closing.push_async_callback(engine.close)

    def drain(self) -> dict[str, float]:
        """The counts of all engines since the last call."""
        return drain_counters(self.engines)


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results of ``calls``, once each of them has ended.  Raises the first error."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], results)


def shells(models: Mapping[str, PreTrainedModel | Adapted]) -> dict[str, PreTrainedModel | Adapted]:
    """``models`` for one of several engines: modules of its own around the same tensors.

    An engine that loads new weights puts them into its modules.  The others must keep theirs until they load, to give
    them to another process where one dies.
    """
    memo: dict[int, Any] = {}
    for model in models.values():
        base = model.model if isinstance(model, Adapted) else model
        memo |= {id(tensor): tensor for tensor in chain(base.parameters(), base.buffers())}

    def shell(model: PreTrainedModel) -> PreTrainedModel:
        return copy.deepcopy(model, memo)  # a model that several policies have, once

    return {
        name: replace(model, model=shell(model.model)) if isinstance(model, Adapted) else shell(model)
        for name, model in models.items()
    }
