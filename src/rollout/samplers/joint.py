"""The joint sampler: joint actions of a team and what each leads to (MAGRPO, arXiv 2508.04652)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul

from ...envs.base import TeamEnv
from ...experience import Episode, Topology
from .joint_tree import Growth, JointSettings, Pairing, TreeBuilder, to_episode
from .rewards import RewardMix
from .sampler import EpisodeSampler, check_at_least, check_forkable, max_steps
from .task_rollout import TaskRollout

MAX_JOINT_ACTIONS = 5_000
"""Per task."""


class JointSampler(EpisodeSampler):
    """Every acting agent answers its own prompt K times; joint actions of these answers are tried on forks.

    ``pairing=aligned`` tries K joint actions, candidate c of every agent in joint action c; ``cross`` all K^n
    combinations; a candidate's rewards are the means over the joint actions that contain it.  A joint action earns the
    mean, over its agents, of the mixed reward (see :class:`.rewards.RewardMix`).

    ``growth=full`` goes on from every joint action that does not end the episode: T turns of n simultaneous agents
    generate n (K + K^2 + ... + K^T) completions if aligned.  ``growth=best`` goes on from the best alone (ties by the
    run's seed): the first version of MAGRPO.  Where the mean reward of a node's joint actions exceeds ``stop_above``,
    the episode ends there.

    In worlds whose agents speak in turn a joint action has one member; in a full tree the team's reward is then that of
    the messages that end a turn, and other messages get the return of the joint actions that follow.
    """

    topology: Topology = "joint"

    def __init__(
        self,
        *,
        k: int = 4,
        pairing: Pairing = "aligned",
        growth: Growth = "full",
        alpha: float = 1.0,
        local: bool = True,
        overlong: float = 0.0,
        stop_above: float | None = None,
        resample: int = 0,
    ) -> None:
        check_at_least(1, k=k)
        check_at_least(0, resample=resample)
        self.settings = JointSettings(k, pairing, growth, stop_above)
        self.k, self.mix, self.resample = k, RewardMix(alpha, local, overlong), resample

    def check(self, world: TeamEnv) -> None:
        """Raise ``ValueError`` where a task's full tree could have more than ``MAX_JOINT_ACTIONS`` joint actions."""
        check_forkable(world)
        steps = max_steps(world)
        joint_actions = self._joint_actions_per_node(steps)
        size = sum(map(mul, joint_actions, self._branches(steps)))
        if size > MAX_JOINT_ACTIONS:
            raise ValueError(
                f"algorithm.sampler: a task's tree of {len(steps)} steps, with up to {max(joint_actions)} joint "
                f"actions at each node, may hold {size:,} of them, above {MAX_JOINT_ACTIONS:,}; lower "
                f"algorithm.sampler.k={self.k} or env.horizon={world.horizon}, or give algorithm.sampler.growth=best"
            )

    def _joint_actions_per_node(self, steps: Sequence[tuple[str, ...]]) -> list[int]:
        """At each step."""
        return [len(self.settings.joint_actions(len(acting))) for acting in steps]

    def _branches(self, steps: Sequence[tuple[str, ...]]) -> list[int]:
        """The branches of a tree, at the most, at each step."""
        if self.settings.growth == "best":
            return [1] * len(steps)
        return list(accumulate(self._joint_actions_per_node(steps)[:-1], mul, initial=1))

    def max_completions(self, world: TeamEnv) -> Mapping[str, int]:
        count: Counter[str] = Counter()
        steps = max_steps(world)
        for acting, branches in zip(steps, self._branches(steps), strict=True):
            count.update(dict.fromkeys(acting, self.k * branches))
        return count

    async def _play(self, world: TeamEnv, rollout: TaskRollout) -> Episode:
        root = await TreeBuilder(self.settings, rollout).build(await rollout.start(world))
        return to_episode(rollout.task, root, best_of_k=self.settings.growth == "best")
