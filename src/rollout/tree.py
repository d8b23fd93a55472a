"""The tree sampler: AT-GRPO's Algorithm 1 for sequential agents (PettingLLMs, arXiv 2510.11062)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from ..envs.base import StepResult, TeamEnv
from ..experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task
from .base import Topology
from .seeds import derive
from .voice import Voice


class TreeSampler:
    """At every (agent, turn), K candidates from ONE prompt, each tried on its own fork of the world; the candidate with
    the highest mixed reward ``alpha * team + local`` continues (ties by the run's seed).

    ``lookahead=1``: where an agent does not act on the world, the team reward of its candidate is the outcome of one
    sampled answer of the next agent, instead of the world's own judgement of the message.
    """

    topology: Topology = "tree"

    def __init__(self, *, k: int = 4, alpha: float = 1.0, lookahead: int = 0) -> None:
        if k < 1:
            raise ValueError(f"algorithm.sampler.k must be at least 1, got {k}")
        if lookahead not in (0, 1):
            raise ValueError(f"algorithm.sampler.lookahead must be 0 or 1, got {lookahead}")
        self.k, self.alpha, self.lookahead = k, alpha, lookahead

    async def collect(
        self, world: TeamEnv, tasks: Sequence[Task], voices: Mapping[str, Voice], seed: int
    ) -> list[Episode]:
        """One episode tree a task, all played side by side.  ``seed`` fixes every draw."""
        return list(await asyncio.gather(*(self._play(world, task, voices, seed) for task in tasks)))

    async def _play(self, world: TeamEnv, task: Task, voices: Mapping[str, Voice], seed: int) -> Episode:
        env = world.fork()
        env.reset(task)
        episode = Episode(task, [], [])
        team_return = 0.0
        while acting := env.next_agents():
            if len(acting) > 1:
                raise ValueError(f"the tree sampler plays one agent at a time, {type(env).__name__} wants {acting}")
            turn, index = env.turn, len(episode.nodes)
            node, forks, results = await self._expand(env, episode, acting[0], voices, seed)
            episode.nodes.append(node)
            best = self._best(node.candidates, Random(derive(seed, task.task_id, index, "tie")))
            node.candidates[best].continued = True
            env = forks[best]
            if env.turn > turn:
                team_return += node.candidates[best].team
            done = results[best].done
            outcome = Outcome(results[best].success, env.turn, team_return) if done else None
            child = None if done else index + 1
            episode.edges.append(JointAction({node.agent: (index, best)}, child, outcome))
        return episode

    async def _expand(
        self, env: TeamEnv, episode: Episode, agent: str, voices: Mapping[str, Voice], seed: int
    ) -> tuple[Node, list[TeamEnv], list[StepResult]]:
        """The next node: K candidates of ``agent`` from one prompt, each stepped on its own fork of ``env``.

        What that cost is added to ``episode``.
        """
        task, index, voice = episode.task, len(episode.nodes), voices[agent]
        prompt = voice.encode(agent, task.task_id, env.observe(agent))
        key = (task.task_id, env.turn, agent, index)
        completions = await voice.speak(prompt, self.k, derive(seed, *key), key)
        forks = [env.fork() for _ in completions]
        results = [await fork.step({agent: c.text}) for fork, c in zip(forks, completions, strict=True)]
        teams = [result.team for result in results]
        episode.env_steps += len(forks)
        if self.lookahead:
            answers = (self._answered(fork, env.turn, task, index, voices, seed, i) for i, fork in enumerate(forks))
            for branch, found in enumerate(await asyncio.gather(*answers)):
                if found is not None:
                    teams[branch], aside = found
                    episode.asides.append(aside)
                    episode.env_steps += 1
        candidates = [
            Candidate(completion, result.local[agent], team, self.alpha * team + result.local[agent], info=result.info)
            for completion, result, team in zip(completions, results, teams, strict=True)
        ]
        node = Node(task.task_id, agent, env.turn, prompt, candidates, index - 1 if index else None)
        return node, forks, results

    @staticmethod
    def _best(candidates: Sequence[Candidate], rng: Random) -> int:
        top = max(candidate.reward for candidate in candidates)
        return rng.choice([i for i, candidate in enumerate(candidates) if candidate.reward == top])

    async def _answered(
        self, fork: TeamEnv, turn: int, task: Task, index: int, voices: Mapping[str, Voice], seed: int, branch: int
    ) -> tuple[float, tuple[int, Completion]] | None:
        """The team reward of one sampled answer of the next agent within the turn, and the answer as an aside of the
        episode; None where the turn is over.
        """
        acting = fork.next_agents()
        if not acting or fork.turn != turn:
            return None
        (agent,) = acting
        prompt = voices[agent].encode(agent, task.task_id, fork.observe(agent))
        key = (task.task_id, turn, agent, index, "lookahead", branch)
        (answer,) = await voices[agent].speak(prompt, 1, derive(seed, *key), key)
        return (await fork.fork().step({agent: answer.text})).team, (len(prompt), answer)
