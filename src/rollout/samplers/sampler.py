"""The interface of samplers: tasks in, episodes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from ...envs.base import TeamEnv
from ...experience import Episode, Task, Topology
from ..playing import gather, or_lost_episode
from ..policy_client import PolicyClient
from .task_rollout import RewardMix, TaskRollout

OnEpisode = Callable[[Episode], None]


class Sampler(Protocol):
    """The topology of a rollout."""

    topology: Topology
    k: int
    """Candidates per node (tree, joint, replay), episodes per task (chain) or trees per task (forest), at the least."""
    resample: int
    """How often, at most, further tasks are played where too few have a group with a nonzero advantage (DAPO's dynamic
    sampling, arXiv 2503.14476, equation 11)."""

    def check(self, world: TeamEnv) -> None:
        """Raise ``ValueError``, naming the key, where the sampler cannot play ``world``."""
        ...

    def max_completions(self, world: TeamEnv) -> Mapping[str, int]:
        """The most completions that one task can cost, by agent."""
        ...

    async def collect(
        self,
        world: TeamEnv,
        tasks: Sequence[Task],
        clients: Mapping[str, PolicyClient],
        seed: int,
        on_episode: OnEpisode = lambda episode: None,
    ) -> list[list[Episode]]:
        """The episodes of each of ``tasks``, in their order; ``seed`` fixes every draw.  An episode that is lost
        has a ``failure`` and no nodes.  ``on_episode`` is called as each ends.
        """
        ...


@runtime_checkable
class Closing(Protocol):
    """A sampler that holds something."""

    async def close(self) -> None:
        """Release it; may be called twice."""
        ...


class MixingSampler:
    """What a sampler of ``k`` candidates that mixes their rewards is told; ``resample``: see :class:`Sampler`."""

    def __init__(
        self, *, k: int = 4, alpha: float = 1.0, local: bool = True, overlong: float = 0.0, resample: int = 0
    ) -> None:
        check_at_least(1, k=k)
        check_at_least(0, resample=resample)
        self.k, self.mix, self.resample = k, RewardMix(alpha, local, overlong), resample


class EpisodeSampler(ABC):
    """A sampler of one episode per task, all played concurrently."""

    mix: RewardMix

    async def collect(
        self,
        world: TeamEnv,
        tasks: Sequence[Task],
        clients: Mapping[str, PolicyClient],
        seed: int,
        on_episode: OnEpisode = lambda episode: None,
    ) -> list[list[Episode]]:
        """See :class:`Sampler`."""

        async def one(rollout: TaskRollout) -> list[Episode]:
            episode = await or_lost_episode(self._play(world, rollout), rollout.task)
            on_episode(episode)
            return [episode]

        return await gather(*(one(TaskRollout(task, clients, seed, self.mix)) for task in tasks))

    @abstractmethod
    async def _play(self, world: TeamEnv, rollout: TaskRollout) -> Episode: ...


def max_steps(world: TeamEnv) -> list[tuple[str, ...]]:
    """The acting agents of each step of an episode that lasts for the whole horizon."""
    return list(world.stages) * world.horizon


def check_forkable(world: TeamEnv) -> None:
    """Raise ``ValueError`` where ``world`` cannot go several ways from one state."""
    if not world.forkable:
        raise ValueError(
            f"algorithm.sampler: a {type(world).__name__} goes one way only, and this sampler tries several from one "
            f"state: {world.one_way}; use an algorithm with chains (mas_grpo, dr_mas, ...)"
        )


def check_at_least(least: int, **values: int) -> None:
    """Raise ``ValueError``, naming the key of ``algorithm.sampler``, for a value below ``least``."""
    for key, value in values.items():
        if not isinstance(value, int) or value < least:
            raise ValueError(f"algorithm.sampler.{key} must be at least {least}, got {value}")
