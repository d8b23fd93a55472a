"""The chain sampler: K independent episodes a task (GRPO, arXiv 2402.03300, carried over to teams and turns)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from ...envs.base import StepResult, TeamEnv
from ...experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task, Topology
from ..playing import act, lasting, together
from ..policy_client import PolicyClient
from ..seeds import derive
from .base import checked_resample
from .rewards import RewardMix

Spoken = tuple[tuple[int, ...], Completion]
"""A prompt and what was said to it."""


class ChainSampler:
    """``k`` episodes of every task, each sampled from start to end on its own; agents may act at the same time.

    The K first messages come from one prompt, and so from one request.  Every node has one candidate, with the mixed
    reward (see :class:`.rewards.RewardMix`).

    The outcome's ``mixed_return`` is ``alpha * team_return`` and, for each agent, the mean of its messages' own parts
    (local, length): a mean, since a proposal may earn its local reward anew at every turn, and failing longer must
    never pay.
    """

    topology: Topology = "chain"

    def __init__(
        self, *, k: int = 4, alpha: float = 1.0, local: bool = True, overlong: float = 0.0, resample: int = 0
    ) -> None:
        if k < 1:
            raise ValueError(f"algorithm.sampler.k must be at least 1, got {k}")
        self.k, self.mix, self.resample = k, RewardMix(alpha, local, overlong), checked_resample(resample)

    def check(self, world: TeamEnv) -> None:
        """Any world will do."""

    def most(self, world: TeamEnv) -> Mapping[str, int]:
        return dict.fromkeys(world.agents, self.k * world.horizon)

    async def collect(
        self, world: TeamEnv, tasks: Sequence[Task], clients: Mapping[str, PolicyClient], seed: int
    ) -> list[list[Episode]]:
        """See :class:`.base.Sampler`: K episodes of each task."""
        return await together(*(self._play(world, task, clients, seed) for task in tasks))

    async def _play(self, world: TeamEnv, task: Task, clients: Mapping[str, PolicyClient], seed: int) -> list[Episode]:
        env = world.fork()
        env.reset(task)
        acting = env.next_agents()
        asked = await together(*(self._ask(env, agent, task, clients[agent], seed, self.k) for agent in acting))
        openings = [
            {agent: (prompt, said[sample]) for agent, (prompt, said) in zip(acting, asked, strict=True)}
            for sample in range(self.k)
        ]
        chains = (
            lasting(task, self._chain(env.fork(), Episode(task, [], [], sample=sample), clients, seed, opening), sample)
            for sample, opening in enumerate(openings)
        )
        return await together(*chains)

    async def _chain(
        self,
        env: TeamEnv,
        episode: Episode,
        clients: Mapping[str, PolicyClient],
        seed: int,
        spoken: Mapping[str, Spoken],
    ) -> Episode:
        """Play ``episode`` to its end; ``spoken`` are its first messages."""
        team_return = 0.0
        while not (result := await self._step(env, episode, spoken, clients)).done:
            team_return += result.team if env.turn > episode.nodes[-1].turn else 0.0
            acting, place = env.next_agents(), (len(episode.nodes), episode.sample)
            asked = (self._ask(env, agent, episode.task, clients[agent], seed, 1, *place) for agent in acting)
            answers = await together(*asked)
            spoken = {agent: (prompt, said) for agent, (prompt, (said,)) in zip(acting, answers, strict=True)}
        team_return += result.team
        outcome = Outcome(result.success, env.turn, team_return, self._return(episode, team_return, clients))
        episode.edges[-1] = JointAction(episode.edges[-1].members, outcome=outcome)
        return episode

    async def _step(
        self, env: TeamEnv, episode: Episode, spoken: Mapping[str, Spoken], clients: Mapping[str, PolicyClient]
    ) -> StepResult:
        """Say ``spoken``, and write it down in ``episode`` with what it earned."""
        turn, first, state = env.turn, len(episode.nodes), env.state_key()
        result = await act(env, {agent: completion.text for agent, (_, completion) in spoken.items()})
        episode.env_steps += 1
        for agent, (prompt, completion) in spoken.items():
            local, sampling = result.local[agent], clients[agent].sampling
            reward = self.mix(result.team, local, completion, sampling)
            candidate = Candidate(completion, local, result.team, reward, continued=True, info=result.info)
            candidate.overlong = self.mix.overlong_of(completion, sampling)
            parent = first - 1 if first else None
            episode.nodes.append(Node(episode.task.task_id, agent, turn, prompt, [candidate], parent, state))
        members = {agent: (first + index, 0) for index, agent in enumerate(spoken)}
        episode.edges.append(JointAction(members, child=len(episode.nodes)))
        return result

    async def _ask(
        self, env: TeamEnv, agent: str, task: Task, client: PolicyClient, seed: int, n: int, *place: int
    ) -> tuple[tuple[int, ...], list[Completion]]:
        """(Prompt, ``n`` completions) of ``agent`` now."""
        prompt = client.encode(agent, task.task_id, env.observe(agent))
        key: tuple[int | str, ...] = (task.task_id, env.turn, agent, *place)
        return prompt, await client.speak(prompt, n, derive(seed, *key), key)

    def _return(self, episode: Episode, team_return: float, clients: Mapping[str, PolicyClient]) -> float:
        earned: dict[str, list[float]] = {}
        for node, candidate in episode.candidates():
            own = self.mix.own(candidate.local, candidate.completion, clients[node.agent].sampling)
            earned.setdefault(node.agent, []).append(own)
        return self.mix.alpha * team_return + sum(fmean(values) for values in earned.values())
