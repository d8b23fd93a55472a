"""The processes of a run: which plays which task, and how they agree about results, errors, interrupts and sums."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
R = TypeVar("R")


class OtherRankError(RuntimeError):
    """Another process has failed and tells the user why; this one only ends."""


class ResultCountError(RuntimeError):
    """Not one result for each task: which belongs to which cannot be known."""


class Interrupted(KeyboardInterrupt):
    """Some process received a request to stop; every process raises this at the same place."""


@dataclass
class Ranks:
    """``world`` processes, of which this is ``rank``; only the ``first`` writes files and prints.

    Whatever all of them must know goes through :meth:`agreed` or :meth:`share`: either every process goes on, or none.
    ``stop_requested`` becomes True where this process is asked to stop, ``over`` once all know that the run ends here.
    """

    rank: int = 0
    world: int = 1
    stop_requested: bool = False
    over: bool = False

    @property
    def first(self) -> bool:
        return self.rank == 0

    def agreed(self, work: Callable[[], T]) -> T:
        """``work()`` of this process, once it has succeeded in all of them.

        Raises what ``work`` raised in the first process that failed, and :class:`OtherRankError` in the others;
        :class:`Interrupted` where one of them was asked to stop.
        """
        return self._agreed(work, stops=True)

    def completed(self, work: Callable[[], T]) -> T:
        """As :meth:`agreed`, also after a request to stop."""
        return self._agreed(work, stops=False)

    def _agreed(self, work: Callable[[], T], *, stops: bool) -> T:
        done: list[bool] = []
        try:
            result = work()
            done.append(True)
        finally:
            self._exchange(done, stops=stops)
        return result

    def own(self, tasks: Sequence[T]) -> Sequence[T]:
        """Those of ``tasks`` that this process plays in :meth:`share`."""
        return tasks[self.rank :: self.world]

    async def share(self, tasks: Sequence[T], play: Callable[[Sequence[T]], Awaitable[list[R]]]) -> list[R]:
        """``play(tasks)``, one result for each task in their order, where task i is played by process i modulo
        ``world``.

        Raises as :meth:`agreed` does, :class:`Interrupted`, and :class:`ResultCountError` where ``play`` returns more
        or fewer results than tasks.
        """
        if self.world == 1:
            return _check_count(tasks, await play(tasks))
        done: list[list[R]] = []
        try:
            own = self.own(tasks)
            done.append(_check_count(own, await play(own)))
        finally:
            everyone = self._exchange(done)
        return [everyone[i % self.world][0][i // self.world] for i in range(len(tasks))]

    def from_first(self, value: T) -> T:
        """The first process's ``value``."""
        return self.from_all(value)[0]

    def from_all(self, value: T) -> list[T]:
        """Every process's ``value``, by rank."""
        return [one for (one,) in self._exchange([value])]

    def total(self, values: Mapping[str, float], device: torch.device) -> dict[str, float]:
        """Each value's sum over the processes."""
        if self.world == 1:
            return dict(values)
        sums = torch.tensor(list(values.values()), dtype=torch.float64, device=device)
        self.add_up(sums)
        return dict(zip(values, sums.tolist(), strict=True))

    def add_up(self, tensor: Tensor) -> None:
        """Replace ``tensor``, of several processes, with its sum over them."""
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM)

    def maximise(self, tensor: Tensor) -> None:
        """Replace ``tensor``, of several processes, with its largest values."""
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)

    def _exchange(self, done: list[Any], *, stops: bool = True) -> list[list[Any]]:
        """Every process's ``done``; an empty one says that it failed.  With ``stops``, a request to stop is obeyed."""
        if self.world == 1:
            return [done]
        everyone: list[Any] = [None] * self.world
        dist.all_gather_object(everyone, (done, self.stop_requested))
        failed = [rank for rank, (result, _) in enumerate(everyone) if not result]
        stopping = stops and any(requested for _, requested in everyone)
        self.over = self.over or bool(failed) or stopping
        if failed and failed[0] != self.rank:
            raise OtherRankError(f"rank {failed[0]} has failed") from sys.exception()
        if not failed and stopping:
            raise Interrupted
        return [result for result, _ in everyone]


def _check_count(tasks: Sequence[T], results: list[R]) -> list[R]:
    """``results``, which are as many as ``tasks``.  Raises :class:`ResultCountError`."""
    if len(results) != len(tasks):
        raise ResultCountError(f"{len(tasks)} tasks were played, and {len(results)} results came of it, not one each")
    return results


def current_ranks() -> Ranks:
    """The processes that this one has joined; itself alone where it has joined none."""
    return Ranks(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Ranks()
