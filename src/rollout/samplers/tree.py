"""The tree sampler: AT-GRPO's Algorithm 1 (PettingLLMs, arXiv 2510.11062)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Any, Literal, get_args

from ...envs.base import TeamEnv
from ...experience import Completion, Episode, Node, Topology
from ..playing import Transition, advance, gather
from .sampler import EpisodeSampler, MixingSampler, check_at_least, check_forkable
from .task_rollout import (
    Said,
    TaskRollout,
    TeamReward,
    auxiliary,
    continued,
    extend,
    first_texts,
    said_with,
    try_aligned,
)

SelectionRule = Literal["greedy", "sampled"]


class TreeSampler(MixingSampler, EpisodeSampler):
    """At every (agent, turn), K candidates from ONE prompt, each tried on its own fork of the world; the candidate with
    the highest mixed reward (see :class:`.task_rollout.RewardMix`) continues (ties by the run's seed).

    Where several agents act at once, candidate c of every agent is tried in joint action c, and the joint action with
    the highest mean reward over the agents continues.

    ``k_by_agent`` sets K for individual agents.  ``selection=sampled`` goes on from a candidate drawn evenly, so that
    states are visited as the policies visit them, without best-of-K selection.  ``stop_above``: an episode ends
    after a node whose mean reward exceeds it.

    ``team`` (``algorithm.reward.team``) says what ``alpha`` weighs.  ``global``: the team's reward, which is what the
    end of the turn is worth, for every agent of the turn.  A candidate that does not end the turn is judged after one
    sampled answer of each agent that follows in it; these answers cost, and are not trained on.  ``own``: the outcome
    of the message itself on its own fork, such as that of a proposal which is carried out on a copy of the world.  It
    is the team's reward only where the message ends the turn.  ``both``: that of ``global``, and the message's own
    outcome is added to its local reward, whoever sends it, as in the authors' first public code.
    """

    topology: Topology = "tree"

    def __init__(
        self,
        *,
        k_by_agent: Mapping[str, int] | None = None,
        selection: SelectionRule = "greedy",
        stop_above: float | None = None,
        team: TeamReward = "own",
        **common: Any,
    ) -> None:
        super().__init__(**common)
        check_at_least(1, **{f"k_by_agent.{agent}": value for agent, value in (k_by_agent or {}).items()})
        if selection not in get_args(SelectionRule):
            raise ValueError(f"algorithm.sampler.selection must be greedy or sampled, got {selection}")
        self.k_by_agent, self.default_k = dict(k_by_agent or {}), self.k
        self.k = min([self.k, *self.k_by_agent.values()])
        self.mix = replace(self.mix, team=team)
        self.selection, self.stop_above = selection, stop_above

    def check(self, world: TeamEnv) -> None:
        check_forkable(world)
        for agent in self.k_by_agent:
            if agent not in world.agents:
                known = ", ".join(world.agents)
                raise ValueError(f"algorithm.sampler.k_by_agent.{agent}: no such agent; the world's agents are {known}")
        if self.mix.team == "both" and len(world.stages) == 1:
            raise ValueError(
                "algorithm.reward.team=both: in this world every message ends its turn, so that its own outcome is the "
                "team's reward, and would count twice; give global or own, which are one here"
            )

    def max_completions(self, world: TeamEnv) -> Mapping[str, int]:
        count: Counter[str] = Counter()
        for index, acting in enumerate(world.stages):
            following = () if self.mix.team == "own" else world.stages[index + 1 :]
            for agents in (acting, *following):
                count.update(dict.fromkeys(agents, self.group_size(acting) * world.horizon))
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
        teams = [each.result.team for each in transitions]
        if self.mix.team != "own":
            said = [(*after, *said_with(answers, c)) for c in range(k)]
            ends = (_end_turn(rollout, each, said[c], first, c) for c, each in enumerate(transitions))
            for c, (team, completions, steps) in enumerate(await gather(*ends)):
                teams[c] = team
                episode.auxiliary += completions
                episode.env_steps += steps
        return rollout.nodes(env, answers, [each.result for each in transitions], teams), transitions

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


async def _end_turn(
    rollout: TaskRollout, transition: Transition, after: Said, node: int, candidate: int
) -> tuple[float, list[tuple[int, Completion]], int]:
    """What the turn of ``transition`` is worth where each agent that follows in it gives one sampled answer; these
    answers, and the steps of the world.  ``after`` is what was said up to then; the state of ``transition`` stays.
    """
    completions: list[tuple[int, Completion]] = []
    steps = 0
    while not transition.ends_turn:
        answers = await rollout.sample_all(transition.env, 1, node, "answer", candidate, steps, after=after)
        transition = await advance(transition.env.fork(), first_texts(answers))
        after = (*after, *said_with(answers, 0))
        completions += auxiliary(answers)
        steps += 1
    return transition.result.team, completions, steps
