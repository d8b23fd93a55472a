"""The interfaces of the room: engines (token ids in, token ids out) and samplers (tasks in, episodes out)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from torch import Tensor

from ..envs.base import TeamEnv
from ..experience import Completion, Episode, Request, Task, Topology
from .playing import lasting, together

if TYPE_CHECKING:
    from .voice import Voice


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
        self, world: TeamEnv, tasks: Sequence[Task], voices: Mapping[str, Voice], seed: int
    ) -> list[list[Episode]]:
        """The episodes of each of ``tasks``, in their order; ``seed`` fixes every draw.  Where the world failed the
        episode says so, and has no nodes.
        """
        ...


class EngineError(RuntimeError):
    """An engine that cannot go on: nothing it would say may be trained on.  The message names the policy."""


class EpisodeSampler(ABC):
    """A sampler of one episode a task, all played side by side."""

    async def collect(
        self, world: TeamEnv, tasks: Sequence[Task], voices: Mapping[str, Voice], seed: int
    ) -> list[list[Episode]]:
        """See :class:`Sampler`."""
        found = await together(*(lasting(task, self._play(world, task, voices, seed)) for task in tasks))
        return [[episode] for episode in found]

    @abstractmethod
    async def _play(self, world: TeamEnv, task: Task, voices: Mapping[str, Voice], seed: int) -> Episode: ...


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


class EngineClosedError(RuntimeError):
    """The engine was closed before or while it served a request."""


@runtime_checkable
class Engine(Protocol):
    """Generates completions with the current weights of one or several policies."""

    async def generate(self, request: Request) -> list[Completion]:
        """``request.n`` completions of ``request.prompt_ids``, drawn with ``request.seed``."""
        ...

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """Replace the weights of ``policy``; completions sampled from now on carry ``version``.

        Returns what was measured of it, by metric.
        """
        ...

    async def sleep(self) -> None:
        """Release what can be released while the learner runs.  :meth:`load` may be called meanwhile, generate not."""
        ...

    async def wake(self) -> Mapping[str, float]:
        """Undo :meth:`sleep`.  Returns what was measured of it, as :meth:`load` does."""
        ...

    async def close(self) -> None:
        """Release everything; no call may follow."""
        ...


@runtime_checkable
class Counting(Protocol):
    """An engine that counts what a run ought to tell."""

    def drain(self) -> Mapping[str, float]:
        """What was counted since the last call, by metric."""
        ...
