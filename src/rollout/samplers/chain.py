"""The chain sampler: K independent episodes per task (GRPO, arXiv 2402.03300, carried over to teams and turns)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from ...envs.base import TeamEnv
from ...experience import Episode, Failure, Node, Task, Topology
from ..playing import Answer, gather, or_failure, or_lost_episode, play_on
from ..policy_client import PolicyClient
from .sampler import MixingSampler, OnEpisode
from .task_rollout import TaskRollout, continued, extend

Opening = tuple[TeamEnv, dict[str, Answer]]
"""The start of a task, and the first messages of all samples."""


class ChainSampler(MixingSampler):
    """``k`` episodes of every task, each sampled from start to end independently; agents may act at the same time.

    The K first messages come from one prompt, and so from one request; in a world that cannot be forked, from K.
    Every node has one candidate, with the mixed reward (see :class:`.task_rollout.RewardMix`).

    The outcome's ``mixed_return`` is ``alpha * team_return`` and, for each agent, the mean of its messages' own parts
    (local, length): a mean, since a proposal may earn its local reward anew at every turn, and a longer failed
    episode must not earn more.
    """

    topology: Topology = "chain"

    def check(self, world: TeamEnv) -> None:
        """Accepts every world."""

    def max_completions(self, world: TeamEnv) -> Mapping[str, int]:
        return dict.fromkeys(world.agents, self.k * world.horizon)

    async def collect(
        self,
        world: TeamEnv,
        tasks: Sequence[Task],
        clients: Mapping[str, PolicyClient],
        seed: int,
        on_episode: OnEpisode = lambda episode: None,
    ) -> list[list[Episode]]:
        """See :class:`.sampler.Sampler`: K episodes of each task."""
        rollouts = [TaskRollout(task, clients, seed, self.mix) for task in tasks]
        return await gather(*(self._play(world, rollout, on_episode) for rollout in rollouts))

    async def _play(self, world: TeamEnv, rollout: TaskRollout, on_episode: OnEpisode) -> list[Episode]:
        opening = await or_failure(self._open(world, rollout), rollout.task) if world.forkable else None

        async def one(sample: int) -> Episode:
            if isinstance(opening, Failure):  # what all samples have in common
                episode = Episode(rollout.task, [], [], sample=sample, failure=opening)
            else:
                chain = self._from_start(world, rollout, opening, sample)
                episode = await or_lost_episode(chain, rollout.task, sample)
            on_episode(episode)
            return episode

        return await gather(*map(one, range(self.k)))

    async def _from_start(self, world: TeamEnv, rollout: TaskRollout, opening: Opening | None, sample: int) -> Episode:
        """An episode of its own.  No function in a function: the frame of one that failed would keep the world."""
        if opening is None:  # each sample has a start of its own
            env = await rollout.start(world)
            answers = await rollout.sample_all(env, 1, *(() if self.k == 1 else (0, sample)))
        else:
            env, firsts = opening
            answers = {agent: Answer.of(each.prompt, each.completions[sample]) for agent, each in firsts.items()}
        return await self._chain(rollout, env, answers, sample)

    async def _open(self, world: TeamEnv, rollout: TaskRollout) -> Opening:
        env = await rollout.start(world)
        return env, await rollout.sample_all(env, self.k)

    async def _chain(self, rollout: TaskRollout, env: TeamEnv, answers: Mapping[str, Answer], sample: int) -> Episode:
        """An episode from the state of ``env``, which stays as it is; ``answers`` are its first messages."""
        episode, team_return = Episode(rollout.task, [], [], sample=sample), 0.0

        async def ask(env: TeamEnv, agent: str) -> Answer:
            if not episode.nodes:
                return answers[agent]
            place, after = (len(episode.nodes), sample), continued(episode.nodes)
            return await rollout.sample(env, agent, 1, *place, after=after)

        async for step in play_on(env, ask):
            result, outcome = step.transition.result, None
            nodes = rollout.nodes(step.env, step.said, [result], [result.team])
            team_return += step.transition.team_return
            if result.done:
                mixed_return = self._mixed_return(rollout, [*episode.nodes, *nodes], team_return)
                outcome = step.transition.outcome(team_return, mixed_return)
            extend(episode, nodes, 0, outcome)
            episode.env_steps += 1
        return episode

    def _mixed_return(self, rollout: TaskRollout, nodes: Sequence[Node], team_return: float) -> float:
        own: dict[str, list[float]] = {}
        for node in nodes:
            (candidate,) = node.candidates
            reward = self.mix.own(candidate.local, candidate.completion, rollout.clients[node.agent].sampling)
            own.setdefault(node.agent, []).append(reward)
        return self.mix.alpha * team_return + sum(fmean(rewards) for rewards in own.values())
