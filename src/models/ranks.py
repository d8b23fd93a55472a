"""The processes of a run: who plays which task, and how they agree about results, errors and interrupts."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")
R = TypeVar("R")


class OtherRankError(RuntimeError):
    """Another process has failed and tells the user why; this one only ends."""


class ResultCountError(RuntimeError):
    """Not one result for each task: which belongs to which cannot be known."""


class Interrupted(KeyboardInterrupt):
    """Some process was told to stop; every process raises this at the same place."""


@dataclass
class Ranks:
    """``world`` processes, of which this is ``rank``; only the ``first`` writes files and speaks.

    Whatever all of them must know goes through :meth:`agreed` or :meth:`share`: either every process goes on, or none.
    ``told`` becomes True where this process was told to stop, ``over`` once all know that the run ends here.
    """

    rank: int = 0
    world: int = 1
    told: bool = False
    over: bool = False

    @property
    def first(self) -> bool:
        return self.rank == 0

    def agreed(self, work: Callable[[], T]) -> T:
        """``work()`` of this process, once it has succeeded in all of them.

        Raises what ``work`` raised in the first process that failed, and :class:`OtherRankError` in the others.
        """
        done: list[bool] = []
        try:
            result = work()
            done.append(True)
        finally:
            self._exchange(done)
        return result

    async def share(self, tasks: Sequence[T], play: Callable[[Sequence[T]], Awaitable[list[R]]]) -> list[R]:
        """What ``play`` makes of ``tasks``, one result for each, in their order; task i is played by process i modulo
        ``world``.

        Raises as :meth:`agreed` does, :class:`Interrupted`, and :class:`ResultCountError` where ``play`` gives more or
        fewer results than it was given tasks.
        """
        if self.world == 1:
            return _counted(tasks, await play(tasks))
        done: list[list[R]] = []
        try:
            mine = tasks[self.rank :: self.world]
            done.append(_counted(mine, await play(mine)))
        finally:
            everyone = self._exchange(done)
        return [everyone[i % self.world][0][i // self.world] for i in range(len(tasks))]

    def from_first(self, value: T) -> T:
        """The first process's ``value``."""
        return self.from_all(value)[0]

    def from_all(self, value: T) -> list[T]:
        """Every process's ``value``, by rank."""
        return [one for (one,) in self._exchange([value])]

    def _exchange(self, done: list[Any]) -> list[list[Any]]:
        """Every process's ``done``; an empty one says that it failed."""
        if self.world == 1:
            return [done]
        everyone: list[Any] = [None] * self.world
        dist.all_gather_object(everyone, (done, self.told))
        failed = [rank for rank, (result, _) in enumerate(everyone) if not result]
        self.over = bool(failed) or any(told for _, told in everyone)
        if failed and failed[0] != self.rank:
            raise OtherRankError(f"rank {failed[0]} has failed") from sys.exception()
        if not failed and self.over:
            raise Interrupted
        return [result for result, _ in everyone]


def _counted(tasks: Sequence[T], results: list[R]) -> list[R]:
    """``results``, which are as many as ``tasks``.  Raises :class:`ResultCountError`."""
    if len(results) != len(tasks):
        raise ResultCountError(f"{len(tasks)} tasks were played, and {len(results)} results came of it, not one each")
    return results


def met() -> Ranks:
    """The processes that have met in this one's life; it is alone where none have."""
    return Ranks(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Ranks()
