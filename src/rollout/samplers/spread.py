"""Episodes played by several actors, each with the world, its sandboxes and the sampler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from logging.handlers import BufferingHandler
from typing import Any

from ...cluster.actors import Answer, LostActorError, RemoteActor, answer_of, settle
from ...cluster.execution import Execution
from ...envs.base import TeamEnv
from ...experience import Episode, Task
from ..engines.ray.engine import RayEngine, RayReplicas
from ..playing import gather
from ..policy_client import PolicyClient
from .sampler import OnEpisode, Sampler

log = logging.getLogger(__name__)


class SpreadSampler:
    """``sampler``, whose tasks are divided among ``execution.worlds`` actors, each to the one that has fewest: task i
    of a call, where there is no other, to actor i modulo their number.  ``build`` makes world and sampler in each;
    it must be fit for pickle.

    Seeds derive from the task, so that the samples depend neither on the number of actors nor on which one is lost: its
    tasks are played again by another one.  Raises :class:`...cluster.actors.LostActorError` past
    ``execution.restarts``.
    """

    def __init__(self, sampler: Sampler, build: Callable[[], tuple[TeamEnv, Sampler]], execution: Execution) -> None:
        self.sampler = sampler
        self.topology, self.k, self.resample = sampler.topology, sampler.k, sampler.resample
        each = execution.resources.worlds
        self.actors: list[RemoteActor] = []
        self._under_way = [0] * execution.worlds
        with ExitStack() as failed:
            for index in range(execution.worlds):
                self.actors.append(RemoteActor(f"worlds {index}", WorldActor, each, execution, build))
                failed.callback(self.actors[-1].group.end)
            failed.pop_all()

    def check(self, world: TeamEnv) -> None:
        """As the sampler."""
        self.sampler.check(world)

    def max_completions(self, world: TeamEnv) -> Mapping[str, int]:
        return self.sampler.max_completions(world)

    async def collect(
        self,
        world: TeamEnv,
        tasks: Sequence[Task],
        clients: Mapping[str, PolicyClient],
        seed: int,
        on_episode: OnEpisode = lambda episode: None,
    ) -> list[list[Episode]]:
        """See :class:`.sampler.Sampler`; ``on_episode`` is called once an actor has played all of its tasks.  The
        actors have worlds of their own."""
        places = [self._next() for _ in tasks]

        async def share(index: int) -> Iterator[list[Episode]]:
            mine = [task for task, place in zip(tasks, places, strict=True) if place == index]
            try:
                played = await self._play(self.actors[index], mine, clients, seed) if mine else []
            finally:
                self._under_way[index] -= len(mine)
            for episode in (each for episodes in played for each in episodes):
                on_episode(episode)
            return iter(played)

        shares = await gather(*map(share, range(len(self.actors))))
        return [next(shares[place]) for place in places]

    def _next(self) -> int:
        """The actor that plays the next task."""
        place = self._under_way.index(min(self._under_way))
        self._under_way[place] += 1
        return place

    async def _play(
        self, actor: RemoteActor, tasks: Sequence[Task], clients: Mapping[str, PolicyClient], seed: int
    ) -> list[list[Episode]]:
        while True:
            borrowed = {agent: await _borrowed(client) for agent, client in clients.items()}
            try:
                played: list[list[Episode]] = await actor.ask("play", tasks, borrowed, seed)
                return played
            except LostActorError:
                if not any([await _replaced(clients[agent], borrowed[agent]) for agent in clients]):
                    raise

    async def close(self) -> None:
        """Close the worlds and end the actors, each of them whatever fails."""
        async with AsyncExitStack() as closing:
            for actor in self.actors:
                closing.push_async_callback(_close, actor)


async def _close(actor: RemoteActor) -> None:
    try:
        if actor.group.actors:
            for warning in await asyncio.to_thread(actor.at_once, "close") or ():
                log.warning("%s: %s", actor.name, warning)
    finally:
        await actor.end()


async def _borrowed(client: PolicyClient) -> PolicyClient:
    if isinstance(client.engine, RayEngine | RayReplicas):
        return replace(client, engine=await client.engine.borrowed())
    return client


async def _replaced(client: PolicyClient, borrowed: PolicyClient) -> bool:
    """Whether the engine that was ``borrowed`` is not the one that is there now."""
    return isinstance(client.engine, RayEngine | RayReplicas) and await client.engine.replaced(borrowed.engine)


class WorldActor:
    """The process of a world."""

    async def begin(self, build: Callable[[], tuple[TeamEnv, Sampler]], folder: str, threads: int) -> Answer:
        """Build the world and the sampler, and open the world."""
        settle(folder, threads)

        async def work() -> None:
            self.world, self.sampler = build()
            await self.world.open()

        return await answer_of(work(), RuntimeError)

    async def close(self) -> Answer:
        """Close the world; what it warns of meanwhile, which nobody reads here."""

        async def work() -> list[str]:
            warnings = BufferingHandler(1 << 16)
            warnings.setLevel(logging.WARNING)
            logging.getLogger().addHandler(warnings)
            try:
                await self.world.close()
            finally:
                logging.getLogger().removeHandler(warnings)
            return [record.getMessage() for record in warnings.buffer]

        return await answer_of(work(), RuntimeError)

    async def play(self, tasks: Sequence[Task], clients: Mapping[str, Any], seed: int) -> Answer:
        """See :class:`.sampler.Sampler`."""
        return await answer_of(self.sampler.collect(self.world, tasks, clients, seed), RuntimeError)
