"""The router: agent -> policy, and which candidates go to which policy's batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from .experience import Episode, Sample

log = logging.getLogger(__name__)


class TeamMapError(ValueError):
    """Agents and policies that do not fit together."""


class Router:
    """``team`` maps agent to policy, many to one; it must cover the world's ``agents`` and use every policy."""

    def __init__(self, team: Mapping[str, str], agents: Sequence[str], policies: Sequence[str]) -> None:
        for agent in agents:
            if agent not in team:
                raise TeamMapError(f"agent '{agent}' has no policy: team maps only {', '.join(team) or 'nobody'}")
        for agent, policy in team.items():
            if agent not in agents:
                raise TeamMapError(f"team maps agent '{agent}', but the world's agents are {', '.join(agents)}")
            if policy not in policies:
                raise TeamMapError(f"agent '{agent}' wants policy '{policy}', but policies has {', '.join(policies)}")
        for policy in policies:
            if policy not in team.values():
                raise TeamMapError(f"policy '{policy}' is used by no agent; team is {dict(team)}")
        self.team, self.policies = dict(team), tuple(policies)

    def route(self, episodes: Sequence[Episode]) -> dict[str, list[list[Sample]]]:
        """For each policy its samples, one list a node.

        A candidate's weight is 1 / (nodes of the policy * K): the loss is a mean over candidates, then over the
        policy's groups.  Groups without any advantage are kept: they count in the mean.
        """
        nodes = {policy: [] for policy in self.policies}  # type: dict[str, list]
        for episode in episodes:
            for node in episode.nodes:
                nodes[self.team[node.agent]].append(node)
        return {
            policy: [
                [
                    Sample(
                        policy=policy,
                        prompt_ids=node.prompt_ids,
                        token_ids=candidate.completion.token_ids,
                        behaviour_logprobs=candidate.completion.logprobs,
                        advantage=_advantage(node.task_id, candidate.advantage),
                        weight=1 / (len(mine) * len(node.candidates)),
                    )
                    for candidate in node.candidates
                ]
                for node in mine
            ]
            for policy, mine in nodes.items()
        }


def _advantage(task_id: str, advantage: float | None) -> float:
    if advantage is None:
        raise ValueError(f"a candidate of task {task_id} has no advantage: credit must come before routing")
    return advantage
