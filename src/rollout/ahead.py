"""Rollouts ahead of the updates: tasks that are played while policies learn from those that were begun before.

An iteration takes the episodes of so many tasks as soon as these have ended: what goes on is taken by a later one, with
messages of several versions.  It waits only for tasks that a coming update would make too old, so that no message is
learnt from more updates of its policy after the one that sampled it than the run's bound.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..experience import Episode, Task


@dataclass(frozen=True)
class Ticket:
    """Where a task comes from: the ``index``-th of the ``size`` that are drawn for ``batch``."""

    batch: int
    size: int
    index: int


@dataclass(frozen=True, eq=False)
class Flight:
    """A task that is played; ``versions`` are what the engines had of each policy that learns when it was begun."""

    ticket: Ticket
    task: Task
    versions: Mapping[str, int]
    episodes: asyncio.Task[list[Episode]]


class Ahead:
    """The tasks of a run that are begun and not yet learnt from.

    ``draw(batch, size)`` gives the tasks of a batch, the same each time; ``play(task, batch)`` their episodes;
    ``versions()`` those of the policies that learn, which the engines have too whenever a method is called.  Batches
    are numbered from 0, as the iterations that they are meant for.  A task whose twin (of another batch, with the same
    id) is under way waits for it: no iteration has two groups of one task.

    The state of a checkpoint names the tasks that are not learnt from, whether they have ended or not; a run that goes
    on plays all of them from the start.  To keep those that have ended would prefer short episodes.
    """

    def __init__(
        self,
        bound: int,
        draw: Callable[[int, int], Sequence[Task]],
        play: Callable[[Task, int], Coroutine[Any, Any, list[Episode]]],
        versions: Callable[[], Mapping[str, int]],
    ) -> None:
        if bound < 1:
            raise ValueError(f"rollouts ahead of the updates need a bound of at least 1, got {bound}")
        self.bound, self.next_batch = bound, 0
        self._draw, self._play, self._versions = draw, play, versions
        self._waiting: list[tuple[Ticket, Task]] = []
        self._flights: list[Flight] = []
        self._taken: list[tuple[Ticket, Task]] = []  # until they are learnt from
        self._cancelled: list[asyncio.Task[list[Episode]]] = []
        self._last_taken: float | None = None
        self.seconds = 0.0
        """In which the tasks that were taken last were played: since those before."""

    @property
    def begun(self) -> int:
        """How many tasks are begun and not learnt from."""
        return len(self._waiting) + len(self._flights) + len(self._taken)

    @property
    def left(self) -> int:
        """How many tasks are begun and not taken."""
        return self.begun - len(self._taken)

    @property
    def under_way(self) -> int:
        """How many tasks have not ended."""
        return len(self._waiting) + sum(not flight.episodes.done() for flight in self._flights)

    def begin(self, size: int) -> Sequence[Task]:
        """Begin the next batch, of ``size`` tasks, which it returns."""
        tasks = self._draw(self.next_batch, size)
        self._waiting += [(Ticket(self.next_batch, size, index), task) for index, task in enumerate(tasks)]
        self.next_batch += 1
        self._start()
        return tasks

    def _start(self) -> None:
        """Start those that wait, but for twins."""
        under_way = {flight.task.task_id for flight in self._flights}
        waiting, self._waiting = self._waiting, []
        for ticket, task in waiting:
            if task.task_id in under_way:
                self._waiting.append((ticket, task))
                continue
            under_way.add(task.task_id)
            playing, title = self._play(task, ticket.batch), f"task {task.task_id} of batch {ticket.batch}"
            episodes = asyncio.get_running_loop().create_task(playing, name=title)
            self._flights.append(Flight(ticket, task, dict(self._versions()), episodes))

    async def take(self, count: int) -> list[list[Episode]]:
        """The episodes of ``count`` tasks, in the order in which these were begun: of all that the next update would
        make too old, then of those that twins wait for, then of the oldest that have ended.  Fewer where no more can
        end, as where tasks wait for twins; then, later, more.

        Raises what a task has raised, also one that is not needed now.  A cancelled call takes nothing.
        """
        start = time.perf_counter()
        self._start()
        while True:
            ended = [flight for flight in self._flights if flight.episodes.done()]
            for flight in ended:
                flight.episodes.result()
            chosen = self._chosen(ended, count)
            going = [flight for flight in self._flights if not flight.episodes.done()]
            if not going or self._may_go(chosen, count):
                break
            await asyncio.wait([flight.episodes for flight in going], return_when=asyncio.FIRST_COMPLETED)
        taken = [flight for flight in self._flights if flight in chosen]
        self._flights = [flight for flight in self._flights if flight not in chosen]
        self._taken += [(flight.ticket, flight.task) for flight in taken]
        self._start()  # twins
        now = time.perf_counter()
        self.seconds, self._last_taken = now - (self._last_taken or start), now
        return [flight.episodes.result() for flight in taken]

    def _chosen(self, ended: Sequence[Flight], count: int) -> list[Flight]:
        """What to take of ``ended``: the last chances first."""
        twins = {task.task_id for _, task in self._waiting}
        last_chance = [flight for flight in ended if self._slack(flight) <= 0]
        others = [flight for flight in ended if flight not in last_chance]
        others.sort(key=lambda flight: flight.task.task_id not in twins)
        return [*last_chance, *others[: max(0, count - len(last_chance))]]

    def _may_go(self, chosen: Sequence[Flight], count: int) -> bool:
        """Whether ``chosen`` are enough, and all others may be left: no update makes one too old, where each of the
        coming iterations takes ``count``.
        """
        left = [self._slack(flight) for flight in self._flights if flight not in chosen]
        in_time = all(sum(slack <= k for slack in left) <= k * count for k in range(self.bound))
        return len(chosen) >= min(count, len(self._flights)) and in_time

    def _slack(self, flight: Flight) -> int:
        """How many updates may come before the one that learns from it."""
        now = self._versions()
        return self.bound - max((now[policy] - version for policy, version in flight.versions.items()), default=0)

    def learnt(self) -> None:
        """What was taken is learnt from."""
        self._taken = []

    def cancel(self) -> None:
        """Let all that is under way end.  The tasks are not learnt from: the state still names them."""
        self._waiting = sorted(
            [*self._taken, *((flight.ticket, flight.task) for flight in self._flights), *self._waiting],
            key=lambda each: (each[0].batch, each[0].index),
        )
        self._cancelled += [flight.episodes for flight in self._flights]
        self._flights, self._taken = [], []
        for episodes in self._cancelled:
            episodes.cancel()

    async def stop(self) -> None:
        """:meth:`cancel`, and wait until all has ended.  May be called twice."""
        self.cancel()
        await asyncio.gather(*self._cancelled, return_exceptions=True)
        self._cancelled = []

    def state_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        tickets = [ticket for ticket, _ in [*self._taken, *self._waiting]]
        tickets += [flight.ticket for flight in self._flights]
        left = sorted((ticket.batch, ticket.size, ticket.index) for ticket in tickets)
        return {"next_batch": self.next_batch, "left": [list(each) for each in left]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, before anything was begun."""
        self.next_batch, batches = state["next_batch"], {}
        for ticket in (Ticket(*each) for each in state["left"]):
            key = ticket.batch, ticket.size
            if key not in batches:
                batches[key] = self._draw(*key)
            self._waiting.append((ticket, batches[key][ticket.index]))
