"""The tree sampler: AT-GRPO's Algorithm 1 (PettingLLMs, arXiv 2510.11062)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Literal, get_args

from ...envs.base import StepResult, TeamEnv
from ...experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task, Topology
from ..playing import act, together
from ..policy_client import PolicyClient
from ..seeds import derive
from .base import EpisodeSampler, checked_resample, longest
from .rewards import RewardMix

Continuation = Literal["greedy", "sampled"]


class TreeSampler(EpisodeSampler):
    """At every (agent, turn), K candidates from ONE prompt, each tried on its own fork of the world; the candidate with
    the highest mixed reward (see :class:`.rewards.RewardMix`) continues (ties by the run's seed).

    Where several agents act at once, candidate c of every agent is tried in joint action c, and the joint action with
    the highest mean reward over the agents continues.

    ``width`` gives single agents another K.  ``continuation=sampled`` goes on from a candidate drawn evenly, so that
    the states met are those that the policies lead to, not those of the best of K.  ``stop_above``: an episode ends
    after a node whose mean reward exceeds it.  ``lookahead=1``: where an agent does not act on the world, the team
    reward of its candidate is the outcome of one sampled answer of the next agent, instead of the world's own judgement
    of the message.
    """

    topology: Topology = "tree"

    def __init__(
        self,
        *,
        k: int = 4,
        width: Mapping[str, int] | None = None,
        alpha: float = 1.0,
        local: bool = True,
        overlong: float = 0.0,
        continuation: Continuation = "greedy",
        stop_above: float | None = None,
        lookahead: int = 0,
        resample: int = 0,
    ) -> None:
        if k < 1:
            raise ValueError(f"algorithm.sampler.k must be at least 1, got {k}")
        for agent, least in (width or {}).items():
            if least < 1:
                raise ValueError(f"algorithm.sampler.width.{agent} must be at least 1, got {least}")
        if continuation not in get_args(Continuation):
            raise ValueError(f"algorithm.sampler.continuation must be greedy or sampled, got {continuation}")
        if lookahead not in (0, 1):
            raise ValueError(f"algorithm.sampler.lookahead must be 0 or 1, got {lookahead}")
        self.width, self.usual = dict(width or {}), k
        self.k = min([k, *self.width.values()])
        self.mix, self.resample = RewardMix(alpha, local, overlong), checked_resample(resample)
        self.continuation, self.stop_above, self.lookahead = continuation, stop_above, lookahead

    def check(self, world: TeamEnv) -> None:
        for agent in self.width:
            if agent not in world.agents:
                known = ", ".join(world.agents)
                raise ValueError(f"algorithm.sampler.width.{agent}: no such agent; the world's agents are {known}")

    def most(self, world: TeamEnv) -> Mapping[str, int]:
        count: Counter[str] = Counter()
        steps = longest(world)
        for acting, following in zip(steps, [*steps[1:], ()], strict=True):
            width = self._wide(acting)
            count.update(dict.fromkeys(acting, width))
            if self.lookahead and acting[-1] != world.agents[-1]:  # what ends a turn acts on the world
                count.update(dict.fromkeys(following, width))
        return count

    async def _play(self, world: TeamEnv, task: Task, clients: Mapping[str, PolicyClient], seed: int) -> Episode:
        env = world.fork()
        env.reset(task)
        episode = Episode(task, [], [], chosen=self.continuation == "greedy")
        team_return, done = 0.0, False
        while not done and (acting := env.next_agents()):
            turn, first = env.turn, len(episode.nodes)
            nodes, forks, results = await self._expand(env, episode, acting, clients, seed)
            episode.nodes += nodes
            best = self._chosen(nodes, Random(derive(seed, task.task_id, first, "tie")))
            for node in nodes:
                node.candidates[best].continued = True
            env = forks[best]
            if env.turn > turn:
                team_return += nodes[0].candidates[best].team
            done = results[best].done or self._enough(nodes)
            outcome = Outcome(results[best].success, env.turn, team_return) if done else None
            members = {node.agent: (first + i, best) for i, node in enumerate(nodes)}
            episode.edges.append(JointAction(members, None if done else first + len(nodes), outcome))
        return episode

    async def _expand(
        self, env: TeamEnv, episode: Episode, acting: Sequence[str], clients: Mapping[str, PolicyClient], seed: int
    ) -> tuple[list[Node], list[TeamEnv], list[StepResult]]:
        """The next node of each acting agent: K candidates from its prompt, stepped together on forks of ``env``.

        What that cost is added to ``episode``.
        """
        task, first = episode.task, len(episode.nodes)
        prompts = [clients[agent].encode(agent, task.task_id, env.observe(agent)) for agent in acting]
        keys = [(task.task_id, env.turn, agent, first + i) for i, agent in enumerate(acting)]
        asked = (
            clients[agent].speak(prompt, self._wide(acting), derive(seed, *key), key)
            for agent, prompt, key in zip(acting, prompts, keys, strict=True)
        )
        spoken = dict(zip(acting, await together(*asked), strict=True))
        joint = [dict(zip(acting, said, strict=True)) for said in zip(*spoken.values(), strict=True)]
        forks = [env.fork() for _ in joint]
        results = await together(
            *(
                act(fork, {agent: completion.text for agent, completion in said.items()})
                for fork, said in zip(forks, joint, strict=True)
            )
        )
        episode.env_steps += len(forks)
        teams = [result.team for result in results]
        if self.lookahead:
            answers = (self._answered(fork, env.turn, task, first, clients, seed, i) for i, fork in enumerate(forks))
            for branch, found in enumerate(await together(*answers)):
                if found is not None:
                    teams[branch], asides = found
                    episode.asides += asides
                    episode.env_steps += 1
        state, parent = env.state_key(), first - 1 if first else None
        nodes = [
            Node(
                task.task_id,
                agent,
                env.turn,
                prompt,
                [
                    self._candidate(completion, result, team, agent, clients[agent])
                    for completion, result, team in zip(spoken[agent], results, teams, strict=True)
                ],
                parent,
                state,
            )
            for agent, prompt in zip(acting, prompts, strict=True)
        ]
        return nodes, forks, results

    def _candidate(
        self, completion: Completion, result: StepResult, team: float, agent: str, client: PolicyClient
    ) -> Candidate:
        local, sampling = result.local[agent], client.sampling
        reward, overlong = self.mix(team, local, completion, sampling), self.mix.overlong_of(completion, sampling)
        return Candidate(completion, local, team, reward, info=result.info, overlong=overlong)

    def _wide(self, acting: Sequence[str]) -> int:
        """K of the agents that act at once."""
        widths = {self.width.get(agent, self.usual) for agent in acting}
        if len(widths) > 1:
            raise ValueError(f"algorithm.sampler.width: {', '.join(acting)} act at once, so they need the same width")
        return widths.pop()

    def _enough(self, nodes: Sequence[Node]) -> bool:
        rewards = [candidate.reward for node in nodes for candidate in node.candidates]
        return self.stop_above is not None and fmean(rewards) > self.stop_above

    def _chosen(self, nodes: Sequence[Node], rng: Random) -> int:
        """The joint action that continues."""
        joint = list(zip(*(node.candidates for node in nodes), strict=True))
        if self.continuation == "sampled":
            return rng.randrange(len(joint))
        rewards = [fmean(candidate.reward for candidate in members) for members in joint]
        top = max(rewards)
        return rng.choice([i for i, reward in enumerate(rewards) if reward == top])

    async def _answered(
        self,
        fork: TeamEnv,
        turn: int,
        task: Task,
        index: int,
        clients: Mapping[str, PolicyClient],
        seed: int,
        branch: int,
    ) -> tuple[float, list[tuple[int, Completion]]] | None:
        """The team reward of one sampled answer of the next agents within the turn, and the answers as asides of the
        episode; None where the turn is over.
        """
        acting = fork.next_agents()
        if not acting or fork.turn != turn:
            return None
        texts, asides = {}, []
        for agent in acting:
            prompt = clients[agent].encode(agent, task.task_id, fork.observe(agent))
            key = (task.task_id, turn, agent, index, "lookahead", branch)
            (answer,) = await clients[agent].speak(prompt, 1, derive(seed, *key), key)
            texts[agent] = answer.text
            asides.append((len(prompt), answer))
        return (await act(fork.fork(), texts)).team, asides
