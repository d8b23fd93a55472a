"""The interface of samplers: tasks in, episodes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol

from ...envs.base import TeamEnv
from ...experience import Episode, Task, Topology
from ..playing import lasting, together
from ..policy_client import PolicyClient


class Sampler(Protocol):
    """The topology of a rollout.  ``k``: candidates a node (tree, joint) or episodes a task (chain), at the least.

    ``resample``: how often, at most, tasks whose groups do not differ are replaced by others (DAPO's dynamic sampling,
    arXiv 2503.14476, equation 11).
    """

    topology: Topology
    k: int
    resample: int

    def check(self, world: TeamEnv) -> None:
        """Raise ``ValueError``, naming the key, where the sampler cannot play ``world``."""
        ...

    def most(self, world: TeamEnv) -> Mapping[str, int]:
        """The most completions that one task can cost, by agent."""
        ...

    async def collect(
        self, world: TeamEnv, tasks: Sequence[Task], clients: Mapping[str, PolicyClient], seed: int
    ) -> list[list[Episode]]:
        """The episodes of each of ``tasks``, in their order; ``seed`` fixes every draw.  Where the world failed the
        episode says so, and has no nodes.
        """
        ...


class EpisodeSampler(ABC):
    """A sampler of one episode a task, all played side by side."""

    async def collect(
        self, world: TeamEnv, tasks: Sequence[Task], clients: Mapping[str, PolicyClient], seed: int
    ) -> list[list[Episode]]:
        """See :class:`Sampler`."""
        found = await together(*(lasting(task, self._play(world, task, clients, seed)) for task in tasks))
        return [[episode] for episode in found]

    @abstractmethod
    async def _play(self, world: TeamEnv, task: Task, clients: Mapping[str, PolicyClient], seed: int) -> Episode: ...


def longest(world: TeamEnv) -> list[tuple[str, ...]]:
    """Who acts at each step of an episode that goes on for the whole horizon."""
    together = len(world.opening()) == len(world.agents)
    turn: list[tuple[str, ...]] = [tuple(world.agents)] if together else [(agent,) for agent in world.agents]
    return turn * world.horizon


def checked_resample(rounds: int) -> int:
    """Raise ``ValueError``, naming the key, for what is no number of rounds."""
    if rounds < 0:
        raise ValueError(f"algorithm.sampler.resample must be >= 0, got {rounds}")
    return rounds
