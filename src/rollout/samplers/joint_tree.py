"""How a tree of joint actions grows, and how it becomes an episode."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from statistics import fmean
from typing import Literal, get_args

from ...envs.base import StepResult, TeamEnv
from ...experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task
from ..playing import act, together
from ..policy_client import PolicyClient
from ..seeds import derive
from .rewards import RewardMix

Joint = Literal["aligned", "cross"]
Growth = Literal["full", "best"]


@dataclass(frozen=True)
class Rules:
    """What is tried at a node, and what goes on; see :class:`.joint.JointSampler`."""

    k: int
    joint: Joint
    tree: Growth
    mix: RewardMix
    stop_above: float | None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"algorithm.sampler.k must be at least 1, got {self.k}")
        if self.joint not in get_args(Joint):
            raise ValueError(f"algorithm.sampler.joint must be aligned or cross, got {self.joint}")
        if self.tree not in get_args(Growth):
            raise ValueError(f"algorithm.sampler.tree must be full or best, got {self.tree}")

    def picks(self, agents: int) -> list[tuple[int, ...]]:
        """The joint actions of so many agents: a candidate's index for each."""
        if self.joint == "cross":
            return list(product(range(self.k), repeat=agents))
        return [(c,) * agents for c in range(self.k)]


@dataclass
class Branch:
    """A node for each acting agent, and the joint actions of their candidates."""

    nodes: list[Node]
    twigs: list[Twig]


@dataclass
class Twig:
    """A joint action: a candidate's index for each of the branch's nodes, what it earned (and the team's part of that),
    and what it led to."""

    picks: tuple[int, ...]
    reward: float
    team: float
    outcome: Outcome | None = None
    next: Branch | None = None


@dataclass(frozen=True)
class Grower:
    """Grows the branches of one task's tree."""

    rules: Rules
    task: Task
    clients: Mapping[str, PolicyClient]
    seed: int

    async def grow(self, env: TeamEnv, path: tuple[int, ...], team_return: float) -> Branch:
        """What the agents that act now say, try, and lead to; ``path``: the joint actions that led here."""
        acting = env.next_agents()
        asked = [self._ask(env, agent, path) for agent in acting]
        prompts, said = zip(*await together(*asked), strict=True)
        picks = self.rules.picks(len(acting))
        forks = [env.fork() for _ in picks]
        steps = (
            act(fork, {agent: said[i][c].text for i, (agent, c) in enumerate(zip(acting, pick, strict=True))})
            for fork, pick in zip(forks, picks, strict=True)
        )
        results = await together(*steps)
        nodes = [
            self._node(env, agent, prompts[i], said[i], [pick[i] for pick in picks], results, path)
            for i, agent in enumerate(acting)
        ]
        teams = [self._counted(result, fork.turn > env.turn) for fork, result in zip(forks, results, strict=True)]
        twigs = [
            Twig(pick, self._earned(acting, pick, said, result, team), self.rules.mix.alpha * team)
            for pick, result, team in zip(picks, results, teams, strict=True)
        ]
        going = self._going(nodes, twigs, path)
        ended = self.rules.stop_above is not None and fmean(twig.reward for twig in twigs) > self.rules.stop_above
        growing = []
        for index in going:
            fork, result = forks[index], results[index]
            so_far = team_return + result.team * (fork.turn > env.turn)
            if result.done or ended:
                twigs[index].outcome = Outcome(result.success, fork.turn, so_far)
            else:
                growing.append((twigs[index], self.grow(fork, (*path, index), so_far)))
        branches = await together(*(branch for _, branch in growing))
        for (twig, _), branch in zip(growing, branches, strict=True):
            twig.next = branch
        return Branch(nodes, twigs)

    async def _ask(self, env: TeamEnv, agent: str, path: tuple[int, ...]) -> tuple[tuple[int, ...], list[Completion]]:
        client = self.clients[agent]
        prompt = client.encode(agent, self.task.task_id, env.observe(agent))
        key: tuple[int | str, ...] = (self.task.task_id, env.turn, agent, *path)
        return prompt, await client.speak(prompt, self.rules.k, derive(self.seed, *key), key)

    def _counted(self, result: StepResult, turn_ended: bool) -> float:
        """The team reward of a joint action."""
        return result.team if turn_ended or self.rules.tree == "best" else 0.0

    def _earned(
        self,
        acting: Sequence[str],
        pick: Sequence[int],
        said: Sequence[Sequence[Completion]],
        result: StepResult,
        team: float,
    ) -> float:
        """The reward of a joint action."""
        return fmean(
            self.rules.mix(team, result.local[agent], said[i][c], self.clients[agent].sampling)
            for i, (agent, c) in enumerate(zip(acting, pick, strict=True))
        )

    def _node(
        self,
        env: TeamEnv,
        agent: str,
        prompt: tuple[int, ...],
        said: Sequence[Completion],
        picked: Sequence[int],
        results: Sequence[StepResult],
        path: tuple[int, ...],
    ) -> Node:
        """The node of ``agent``; ``picked`` are its candidates in the joint actions that had ``results``."""
        candidates = []
        for index, completion in enumerate(said):
            mine = [result for pick, result in zip(picked, results, strict=True) if pick == index]
            team, local = fmean(result.team for result in mine), fmean(result.local[agent] for result in mine)
            sampling = self.clients[agent].sampling
            reward = self.rules.mix(team, local, completion, sampling)
            info = {name: fmean(result.info[name] for result in mine) for name in mine[0].info}
            overlong = self.rules.mix.overlong_of(completion, sampling)
            candidates.append(Candidate(completion, local, team, reward, info=info, overlong=overlong))
        return Node(self.task.task_id, agent, env.turn, prompt, candidates, state=env.state_key(), path=path)

    def _going(self, nodes: Sequence[Node], twigs: Sequence[Twig], path: tuple[int, ...]) -> list[int]:
        """The joint actions that are followed; their candidates are marked."""
        going = list(range(len(twigs)))
        if self.rules.tree == "best":
            top = max(twig.reward for twig in twigs)
            rng = Random(derive(self.seed, self.task.task_id, "tie", *path))
            going = [rng.choice([i for i in going if twigs[i].reward == top])]
        for index in going:
            for node, candidate in zip(nodes, twigs[index].picks, strict=True):
                node.candidates[candidate].continued = True
        return going


def written(task: Task, root: Branch, *, chosen: bool) -> Episode:
    """The tree as an episode: breadth first, so that nodes and edges of a step stand together."""
    episode = Episode(task, [], [], chosen=chosen)
    waiting: deque[tuple[Branch, int | None]] = deque([(root, None)])
    free = len(root.nodes)
    while waiting:
        branch, parent = waiting.popleft()
        first = len(episode.nodes)
        episode.nodes += [replace(node, parent=parent) for node in branch.nodes]
        episode.env_steps += len(branch.twigs)
        for twig in branch.twigs:
            members = {node.agent: (first + i, twig.picks[i]) for i, node in enumerate(branch.nodes)}
            child = None
            if twig.next is not None:
                child, free = free, free + len(twig.next.nodes)
                waiting.append((twig.next, first + len(branch.nodes) - 1))
            episode.edges.append(JointAction(members, child, twig.outcome, twig.reward, twig.team))
    return episode
