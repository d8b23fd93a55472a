"""The joint sampler (MAGRPO, arXiv 2508.04652): joint actions of a team and what each leads to, as a tree that becomes
an episode.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from operator import mul
from statistics import fmean
from typing import Any, Literal

from ...envs.base import TeamEnv
from ...errors import check_fields
from ...experience import Candidate, Episode, JointAction, Node, Outcome, Task, Topology
from ..playing import Answer, Transition, advance, gather
from .sampler import EpisodeSampler, MixingSampler, check_forkable, max_steps
from .task_rollout import Said, TaskRollout, said_in

Pairing = Literal["aligned", "cross"]
Growth = Literal["full", "best"]


@dataclass(frozen=True)
class JointSettings:
    """Which joint actions are tried at a node, and which go on; see :class:`JointSampler`."""

    k: int
    pairing: Pairing
    growth: Growth
    stop_above: float | None

    def __post_init__(self) -> None:
        check_fields(self, "algorithm.sampler.")

    def joint_actions(self, agents: int) -> list[tuple[int, ...]]:
        """The joint actions of so many agents: a candidate's index for each."""
        if self.pairing == "cross":
            return list(product(range(self.k), repeat=agents))
        return [(c,) * agents for c in range(self.k)]


@dataclass
class JointStep:
    """A joint action that was tried."""

    members: tuple[int, ...]
    """Candidate index of each acting agent."""
    transition: Transition
    reward: float
    """The mean mixed reward over its agents."""
    team: float
    """The team's part of ``reward``."""
    outcome: Outcome | None = None
    """Where the episode ends with it."""
    next: JointNode | None = None
    """Where the episode goes on from it."""


@dataclass(frozen=True)
class JointNode:
    """A node for each acting agent, and the joint actions of their candidates."""

    nodes: list[Node]
    steps: list[JointStep]


@dataclass(frozen=True)
class TreeBuilder:
    """Builds the tree of one task."""

    settings: JointSettings
    rollout: TaskRollout

    async def build(
        self, env: TeamEnv, path: tuple[int, ...] = (), team_return: float = 0.0, after: Said = ()
    ) -> JointNode:
        """The tree from the state of ``env``, to which the joint actions ``path``, in which ``after`` was said, led,
        earning ``team_return``."""
        answers = await self.rollout.sample_all(env, self.settings.k, *path, after=after)
        joint_actions = self.settings.joint_actions(len(answers))
        transitions = await gather(*(advance(env.fork(), _texts(answers, members)) for members in joint_actions))
        steps = [
            self._step(answers, members, transition)
            for members, transition in zip(joint_actions, transitions, strict=True)
        ]
        nodes = [
            self.rollout.node(env, agent, answer, self._candidates(agent, answer, i, steps), path)
            for i, (agent, answer) in enumerate(answers.items())
        ]
        await self._go_on(nodes, steps, path, team_return, after)
        return JointNode(nodes, steps)

    def _step(self, answers: Mapping[str, Answer], members: tuple[int, ...], transition: Transition) -> JointStep:
        """``transition`` with what the joint action earned."""
        result = transition.result
        team = result.team if self.settings.growth == "best" else transition.team_return
        reward = fmean(
            self.rollout.reward(agent, answer.completions[c], result.local[agent], team)
            for (agent, answer), c in zip(answers.items(), members, strict=True)
        )
        return JointStep(members, transition, reward, self.rollout.mix.alpha * team)

    def _candidates(self, agent: str, answer: Answer, position: int, steps: Sequence[JointStep]) -> list[Candidate]:
        """The candidates of ``agent``, at ``position`` in the joint actions: each has the mean over those it is in."""
        candidates = []
        for c, completion in enumerate(answer.completions):
            results = [step.transition.result for step in steps if step.members[position] == c]
            team, local = fmean(result.team for result in results), fmean(result.local[agent] for result in results)
            names = dict.fromkeys(name for result in results for name in result.info)  # steps may differ in them
            info = {name: fmean(each.info[name] for each in results if name in each.info) for name in names}
            candidates.append(self.rollout.candidate(agent, completion, local, team, info))
        return candidates

    async def _go_on(
        self,
        nodes: Sequence[Node],
        steps: Sequence[JointStep],
        path: tuple[int, ...],
        team_return: float,
        after: Said,
    ) -> None:
        """Set the outcome or the next node of each step that goes on, and mark its candidates."""
        stop_above = self.settings.stop_above
        ends = stop_above is not None and fmean(step.reward for step in steps) > stop_above
        open_steps, subtrees = [], []
        for index in self._select(steps, path):
            step = steps[index]
            for node, candidate in zip(nodes, step.members, strict=True):
                node.candidates[candidate].continued = True
            total = team_return + step.transition.team_return
            if step.transition.result.done or ends:
                step.outcome = step.transition.outcome(total)
            else:
                open_steps.append(step)
                said = (*after, *said_in(nodes, step.members))
                subtrees.append(self.build(step.transition.env, (*path, index), total, said))
        for step, subtree in zip(open_steps, await gather(*subtrees), strict=True):
            step.next = subtree

    def _select(self, steps: Sequence[JointStep], path: tuple[int, ...]) -> list[int]:
        """Indices of the joint actions that go on: all, or the best (ties by the run's seed)."""
        if self.settings.growth == "full":
            return list(range(len(steps)))
        best = max(step.reward for step in steps)
        return [self.rollout.rng("tie", *path).choice([i for i, step in enumerate(steps) if step.reward == best])]


def _texts(answers: Mapping[str, Answer], members: Sequence[int]) -> dict[str, str]:
    """The joint action of the candidates ``members``."""
    return {agent: answer.completions[c].text for (agent, answer), c in zip(answers.items(), members, strict=True)}


def to_episode(task: Task, root: JointNode, *, best_of_k: bool) -> Episode:
    """The tree as an episode: breadth first, so that nodes and edges of a step stand together."""
    episode = Episode(task, [], [], best_of_k=best_of_k)
    queue: deque[tuple[JointNode, int | None]] = deque([(root, None)])
    free = len(root.nodes)  # index of the first node that is not yet in the queue
    while queue:
        joint_node, parent = queue.popleft()
        first = len(episode.nodes)
        episode.nodes += [replace(node, parent=parent) for node in joint_node.nodes]
        episode.env_steps += len(joint_node.steps)
        for step in joint_node.steps:
            members = {node.agent: (first + i, step.members[i]) for i, node in enumerate(joint_node.nodes)}
            child = None
            if step.next is not None:
                child, free = free, free + len(step.next.nodes)
                queue.append((step.next, first + len(joint_node.nodes) - 1))
            episode.edges.append(JointAction(members, child, step.outcome, step.reward, step.team))
    return episode


MAX_JOINT_ACTIONS = 5_000
"""Per task."""


class JointSampler(MixingSampler, EpisodeSampler):
    """Every acting agent answers its own prompt K times; joint actions of these answers are tried on forks.

    ``pairing=aligned`` tries K joint actions, candidate c of every agent in joint action c; ``cross`` all K^n
    combinations; a candidate's rewards are the means over the joint actions that contain it.  A joint action earns the
    mean, over its agents, of the mixed reward (see :class:`.task_rollout.RewardMix`).

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
        pairing: Pairing = "aligned",
        growth: Growth = "full",
        stop_above: float | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.settings = JointSettings(self.k, pairing, growth, stop_above)

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
