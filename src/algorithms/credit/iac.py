"""IAC: independent actor-critic, a decentralised critic (CoLLM-DC, arXiv 2601.21972)."""

from __future__ import annotations

from collections.abc import Sequence

from ...experience import Episode, Node
from .actor_critic import ActorCritic, CriticInput, CriticStep
from .base import nodes_by_step


class Iac(ActorCritic):
    """V_i(h_i): the critic of an agent reads what the agent reads, its prompt.

    A trajectory is one agent's messages.  The reward of a message is the agent's own (local, length) plus ``alpha``
    times what the team earns from there to the agent's next message.  Each policy has a critic, so that agents which
    share a policy share its critic.
    """

    centralised = False

    def inputs(self, episode: Episode) -> list[CriticInput]:
        return [CriticInput(node.candidates[0].completion.policy, node.prompt_ids) for node in episode.nodes]

    def trajectories(self, episode: Episode) -> list[list[CriticStep]]:
        earned = list(zip(nodes_by_step(episode), self.team_rewards(episode), strict=True))
        agents = dict.fromkeys(node.agent for node in episode.nodes)
        return [self._trajectory(agent, earned) for agent in agents]

    def _trajectory(self, agent: str, earned: Sequence[tuple[Sequence[Node], float]]) -> list[CriticStep]:
        own: list[tuple[Node, float]] = []
        for nodes, team in earned:
            own += [(node, self.own_reward(node)) for node in nodes if node.agent == agent]
            if own:  # before its first message nothing is its own doing
                own[-1] = own[-1][0], own[-1][1] + team
        return [CriticStep([node], reward) for node, reward in own]
