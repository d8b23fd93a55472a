"""MAAC: multi-agent actor-critic, a centralised critic (CoLLM-CC, arXiv 2601.21972)."""

from __future__ import annotations

from ...experience import Episode
from .actor_critic import TEAM, ActorCritic, CriticInput, CriticStep
from .base import nodes_by_step


class Maac(ActorCritic):
    """V(h_1, ..., h_n): one critic for the team reads the joint history.

    The joint history of a step: of each agent that has acted before, its last prompt and its message, the oldest first,
    then the prompts of the agents that act now, which take the place of their earlier ones.  Where agents act one after
    the other, it holds what the others said since; none of the messages that it judges.

    A trajectory is the episode.  The reward of a step is ``alpha`` times the team's, where it ends a turn, plus the own
    rewards (local, length) of the agents that act.
    """

    centralised = True

    def inputs(self, episode: Episode) -> list[CriticInput]:
        last: dict[str, tuple[int, ...]] = {}
        inputs = []
        for nodes in nodes_by_step(episode):
            for node in nodes:
                last.pop(node.agent, None)
            before = [token for ids in last.values() for token in ids]
            joint = CriticInput(TEAM, tuple(before + [token for node in nodes for token in node.prompt_ids]))
            inputs += [joint] * len(nodes)
            for node in nodes:
                last[node.agent] = node.prompt_ids + node.candidates[0].completion.token_ids
        return inputs

    def trajectories(self, episode: Episode) -> list[list[CriticStep]]:
        steps = zip(nodes_by_step(episode), self.team_rewards(episode), strict=True)
        return [[CriticStep(nodes, team + sum(map(self.own_reward, nodes))) for nodes, team in steps]]
