"""Rollouts ahead of the updates: tasks that are played while policies learn from those that were begun before.

An iteration takes the episodes of so many tasks as soon as these have ended: what goes on is taken by a later one, with
messages of several versions.  It waits only for tasks that a coming update would make too old, so that no message is
learnt from more updates of its policy after the one that sampled it than the policy's bound.

A policy with a smaller bound than the run's speaks later: the tasks of a batch are played up to its first message, and
go on once so few updates are left before the one that they are meant for.  To drop messages that are too old instead
would leave of long episodes the end alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..experience import Completion, Episode, Request, Task
from .engines.base import Engine, Weightless
from .policy_client import PolicyClient

MaySpeak = Callable[[str], Awaitable[object]]
"""Waits until a policy may speak in a task."""


@dataclass(frozen=True)
class Ticket:
    """Where a task comes from: the ``index``-th of the ``size`` that are drawn for ``batch``."""

    batch: int
    size: int
    index: int


@dataclass(frozen=True, eq=False)
class Flight:
    """A task that is played.  ``gates`` are those of policies that speak later than the others; ``versions`` are what
    the engines had of each policy that learns when it was first allowed to speak, none where it is not yet.
    """

    ticket: Ticket
    task: Task
    versions: dict[str, int]
    gates: Mapping[str, asyncio.Event]
    episodes: asyncio.Task[list[Episode]]

    @property
    def open(self) -> bool:
        """Whether everybody may speak, so that it can end."""
        return all(gate.is_set() for gate in self.gates.values())


class Ahead:
    """The tasks of a run that are begun and not yet learnt from.

    ``draw(batch, size)`` gives the tasks of a batch, the same each time; ``play(task, batch, may_speak)`` their
    episodes; ``versions()`` those of the policies that learn, which the engines have too whenever a method is called.
    ``bounds`` has the policies whose bound is smaller than ``bound``, that of all others.  Batches are numbered from 0,
    as the iterations that they are meant for.  A task whose twin (of another batch, with the same id) is under way
    waits for it: no iteration has two groups of one task.

    The state of a checkpoint names the tasks that are not learnt from, whether they have ended or not; a run that goes
    on plays all of them from the start.  To keep those that have ended would prefer short episodes.
    """

    def __init__(
        self,
        bound: int,
        draw: Callable[[int, int], Sequence[Task]],
        play: Callable[[Task, int, MaySpeak], Coroutine[Any, Any, list[Episode]]],
        versions: Callable[[], Mapping[str, int]],
        bounds: Mapping[str, int] | None = None,
    ) -> None:
        if bound < 1:
            raise ValueError(f"rollouts ahead of the updates need a bound of at least 1, got {bound}")
        self.bound, self.next_batch, self.bounds = bound, 0, dict(bounds or {})
        self._iteration = 0
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
        """Start those that wait, but for twins, and let speak who may."""
        under_way = {flight.task.task_id for flight in self._flights}
        waiting, self._waiting = self._waiting, []
        for ticket, task in waiting:
            if task.task_id in under_way:
                self._waiting.append((ticket, task))
                continue
            under_way.add(task.task_id)
            self._flights.append(self._begun(ticket, task))
        for flight in self._flights:
            self._open(flight)

    def _begun(self, ticket: Ticket, task: Task) -> Flight:
        gates = {policy: asyncio.Event() for policy in self.bounds}

        async def may_speak(policy: str) -> None:
            if policy in gates:
                await gates[policy].wait()

        title, playing = f"task {task.task_id} of batch {ticket.batch}", self._play(task, ticket.batch, may_speak)
        versions = {policy: version for policy, version in self._versions().items() if policy not in gates}
        return Flight(ticket, task, versions, gates, asyncio.get_running_loop().create_task(playing, name=title))

    def _open(self, flight: Flight) -> None:
        for policy, gate in flight.gates.items():
            if not gate.is_set() and flight.ticket.batch <= self._iteration + self.bounds[policy]:
                flight.versions[policy] = self._versions()[policy]
                gate.set()

    async def take(self, count: int, iteration: int) -> list[list[Episode]]:
        """The episodes of ``count`` tasks for ``iteration``, in the order in which these were begun: of all that the
        next update would make too old, then of those that twins wait for, then of the oldest that have ended.  Fewer
        where no more can end, as where tasks wait for twins; then, later, more.

        Raises what a task has raised, also one that is not needed now.  A cancelled call takes nothing.
        """
        self._iteration, start = iteration, time.perf_counter()
        self._start()
        while True:
            ended = [flight for flight in self._flights if flight.episodes.done()]
            for flight in ended:
                flight.episodes.result()
            chosen = self._chosen(ended, count)
            going = [flight for flight in self._flights if not flight.episodes.done()]
            if not any(flight.open for flight in going) or self._may_go(chosen, count):
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
        """How many updates may come before the one that learns from it.  A policy that may not speak yet will be
        allowed to in time for the iteration that the task is meant for.
        """
        now, slacks = self._versions(), [flight.ticket.batch - self._iteration] * (not flight.open)
        for policy, version in flight.versions.items():
            slacks.append(self.bounds.get(policy, self.bound) - (now[policy] - version))
        return min(slacks, default=self.bound)

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


def held(
    clients: Mapping[str, PolicyClient], policies: Collection[str], may_speak: MaySpeak
) -> dict[str, PolicyClient]:
    """``clients``, of which those of ``policies`` wait until they may speak."""
    return {
        agent: client.behind(HeldEngine(client.engine, may_speak)) if client.policy in policies else client
        for agent, client in clients.items()
    }


class HeldEngine(Weightless):
    """``engine`` for one task, in which a policy generates once it may speak."""

    def __init__(self, engine: Engine, may_speak: MaySpeak) -> None:
        self.engine, self.may_speak = engine, may_speak

    async def generate(self, request: Request) -> list[Completion]:
        """See :class:`.engines.base.Engine`."""
        await self.may_speak(request.policy)
        return await self.engine.generate(request)

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        raise TypeError("weights are loaded into the engine itself")

    async def close(self) -> None:
        """Others use the engine, too."""
