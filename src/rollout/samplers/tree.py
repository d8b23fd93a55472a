"""The tree sampler: AT-GRPO's Algorithm 1 (PettingLLMs, arXiv 2510.11062)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Literal, get_args

from ...envs.base import TeamEnv
from ...experience import Completion, Episode, Node, Topology
from ..playing import gather
from .base import EpisodeSampler, check_at_least, check_forkable, max_steps
from .rewards import RewardMix
from .task_rollout import TaskRollout, Transition, advance, auxiliary, continued, extend, first_texts, try_aligned

SelectionRule = Literal["greedy", "sampled"]


class TreeSampler(EpisodeSampler):
    """At every (agent, turn), K candidates from ONE prompt, each tried on its own fork of the world; the candidate with
    the highest mixed reward (see :class:`.rewards.RewardMix`) continues (ties by the run's seed).

    Where several agents act at once, candidate c of every agent is tried in joint action c, and the joint action with
    the highest mean reward over the agents continues.

    ``k_by_agent`` sets K for individual agents.  ``selection=sampled`` goes on from a candidate drawn evenly, so that
    states are visited as the policies visit them, without best-of-K selection.  ``stop_above``: an episode ends
    after a node whose mean reward exceeds it.  ``lookahead=1``: where an agent does not act on the world, the team
    reward of its candidate is the outcome of one sampled answer of the next agent, instead of the world's own judgement
    of the message.
    """

    topology: Topology = "tree"

    def __init__(
        self,
        *,
        k: int = 4,
        k_by_agent: Mapping[str, int] | None = None,
        alpha: float = 1.0,
        local: bool = True,
        overlong: float = 0.0,
        selection: SelectionRule = "greedy",
        stop_above: float | None = None,
        lookahead: int = 0,
        resample: int = 0,
    ) -> None:
        check_at_least(1, k=k, **{f"k_by_agent.{agent}": value for agent, value in (k_by_agent or {}).items()})
        check_at_least(0, resample=resample)
        if selection not in get_args(SelectionRule):
            raise ValueError(f"algorithm.sampler.selection must be greedy or sampled, got {selection}")
        if lookahead not in (0, 1):
            raise ValueError(f"algorithm.sampler.lookahead must be 0 or 1, got {lookahead}")
        self.k_by_agent, self.default_k = dict(k_by_agent or {}), k
        self.k = min([k, *self.k_by_agent.values()])
        self.mix, self.resample = RewardMix(alpha, local, overlong), resample
        self.selection, self.stop_above, self.lookahead = selection, stop_above, lookahead

    def check(self, world: TeamEnv) -> None:
        check_forkable(world)
        for agent in self.k_by_agent:
            if agent not in world.agents:
                known = ", ".join(world.agents)
                raise ValueError(f"algorithm.sampler.k_by_agent.{agent}: no such agent; the world's agents are {known}")

    def max_completions(self, world: TeamEnv) -> Mapping[str, int]:
        count: Counter[str] = Counter()
        steps = max_steps(world)
        for acting, following in zip(steps, [*steps[1:], ()], strict=True):
            k = self.group_size(acting)
            count.update(dict.fromkeys(acting, k))
            if self.lookahead and acting[-1] != world.agents[-1]:  # a message that ends a turn acts on the world
                count.update(dict.fromkeys(following, k))
        return count

    def group_size(self, agents: Sequence[str]) -> int:
        """K of ``agents`` that act at once.  Raises ``ValueError`` where they differ in it."""
        sizes = {self.k_by_agent.get(agent, self.default_k) for agent in agents}
        if len(sizes) > 1:
            raise ValueError(f"algorithm.sampler.k_by_agent: {', '.join(agents)} act at once, so they need the same K")
        return sizes.pop()

    async def _play(self, world: TeamEnv, rollout: TaskRollout) -> Episode:
        env = await rollout.start(world)
        episode = Episode(rollout.task, [], [], best_of_k=self.selection == "greedy")
        team_return, outcome = 0.0, None
        while outcome is None and env.next_agents():
            nodes, transitions = await self._expand(rollout, env, episode)
            index = self._select(nodes, rollout.rng(len(episode.nodes), "tie"))
            transition = transitions[index]
            team_return += transition.team_return
            if transition.result.done or self._is_enough(nodes):
                outcome = transition.outcome(team_return)
            extend(episode, nodes, index, outcome)
            env = transition.env
        return episode

    async def _expand(
        self, rollout: TaskRollout, env: TeamEnv, episode: Episode
    ) -> tuple[list[Node], list[Transition]]:
        """The next node of each acting agent, and what each joint action of their candidates led to on a fork of
        ``env``.  The cost is added to ``episode``.
        """
        agents, first, after = env.next_agents(), len(episode.nodes), continued(episode.nodes)
        k = self.group_size(agents)
        # Each agent's place is its own node, as it is for agents in turn.
        samples = (rollout.sample(env, agent, k, first + i, after=after) for i, agent in enumerate(agents))
        answers = dict(zip(agents, await gather(*samples), strict=True))
        transitions = await try_aligned(env, answers)
        episode.env_steps += k
        teams = await self._team_rewards(rollout, transitions, episode)
        return rollout.nodes(env, answers, [each.result for each in transitions], teams), transitions

    async def _team_rewards(
        self, rollout: TaskRollout, transitions: Sequence[Transition], episode: Episode
    ) -> list[float]:
        """The team reward of each joint action.  The cost of looking ahead is added to ``episode``."""
        teams = [each.result.team for each in transitions]
        branches = [c for c, each in enumerate(transitions) if self.lookahead and not each.ends_turn]
        lookaheads = (self._look_ahead(rollout, transitions[c].env, episode, c) for c in branches)
        for c, (team, completions) in zip(branches, await gather(*lookaheads), strict=True):
            teams[c] = team
            episode.auxiliary += completions
            episode.env_steps += 1
        return teams

    async def _look_ahead(
        self, rollout: TaskRollout, env: TeamEnv, episode: Episode, branch: int
    ) -> tuple[float, list[tuple[int, Completion]]]:
        """The team reward of one sampled answer of the agents that act next, and these answers."""
        nodes = episode.nodes
        answers = await rollout.sample_all(env, 1, len(nodes), "lookahead", branch, after=continued(nodes))
        transition = await advance(env.fork(), first_texts(answers))
        return transition.result.team, auxiliary(answers)

    def _select(self, nodes: Sequence[Node], rng: Random) -> int:
        """Index of the joint action that continues."""
        joint_actions = list(zip(*(node.candidates for node in nodes), strict=True))
        if self.selection == "sampled":
            return rng.randrange(len(joint_actions))
        rewards = [fmean(candidate.reward for candidate in members) for members in joint_actions]
        best = max(rewards)
        return rng.choice([c for c, reward in enumerate(rewards) if reward == best])

    def _is_enough(self, nodes: Sequence[Node]) -> bool:
        """Whether the mean reward of the ``nodes`` exceeds ``stop_above``."""
        rewards = [candidate.reward for node in nodes for candidate in node.candidates]
        return self.stop_above is not None and fmean(rewards) > self.stop_above
