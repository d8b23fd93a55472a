"""The router: agent -> policy, and which candidates go to which policy's batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

from .experience import Candidate, Episode, Node, Sample


class TeamMapError(ValueError):
    """Agents and policies that do not fit together."""


class Router:
    """``team`` maps agent to policy, many to one; it must cover the world's ``agents`` and use every policy.

    Candidates of ``frozen`` policies are not routed: these policies do not learn (remote ones are frozen, too).
    """

    def __init__(
        self, team: Mapping[str, str], agents: Sequence[str], policies: Sequence[str], frozen: Collection[str] = ()
    ) -> None:
        for agent in agents:
            if agent not in team:
                raise TeamMapError(f"agent '{agent}' has no policy: team has {', '.join(team) or 'no agent'}")
        for agent, policy in team.items():
            if agent not in agents:
                raise TeamMapError(f"team maps agent '{agent}', but the world's agents are {', '.join(agents)}")
            if policy not in policies:
                raise TeamMapError(
                    f"team maps agent '{agent}' to policy '{policy}', but policies has {', '.join(policies)}"
                )
        for policy in policies:
            if policy not in team.values():
                raise TeamMapError(f"policy '{policy}' is used by no agent; team is {dict(team)}")
        if set(policies) <= set(frozen):
            verb = "are" if len(policies) > 1 else "is"
            raise TeamMapError(f"no policy learns: {', '.join(policies)} {verb} frozen or remote")
        self.team, self.policies = dict(team), tuple(policies)
        self.learning = tuple(policy for policy in policies if policy not in frozen)

    def route(self, episodes: Sequence[Episode], key: Callable[[Node], Hashable]) -> dict[str, list[list[Sample]]]:
        """The samples of each policy that learns, one list per group; ``key`` (the credit rule's) names a node's group.

        A candidate's weight is 1 / (groups of the policy * the policy's candidates in the group): the loss is a mean
        over candidates, then over groups.  Groups without any advantage are routed too: they count in the mean.

        Raises ``ValueError`` for a candidate without an advantage, or without tokens, as a remote policy's.
        """
        groups: dict[str, dict[Hashable, list[tuple[Node, Candidate]]]] = {policy: {} for policy in self.learning}
        for episode in episodes:
            for node, candidate in episode.candidates():
                if (policy := self.team[node.agent]) in groups:
                    _check_learnable(node, candidate)
                    groups[policy].setdefault(key(node), []).append((node, candidate))
        return {
            policy: [
                [
                    Sample(
                        policy=policy,
                        prompt_ids=node.prompt_ids,
                        token_ids=candidate.completion.token_ids,
                        behaviour_logprobs=candidate.completion.logprobs,
                        advantage=_advantage(node.task_id, candidate.advantage),
                        weight=1 / (len(own) * len(members)),
                        agent=node.agent,
                        turn=node.turn,
                    )
                    for node, candidate in members
                ]
                for members in own.values()
            ]
            for policy, own in groups.items()
        }


def _check_learnable(node: Node, candidate: Candidate) -> None:
    if candidate.completion.text_only:
        raise ValueError(
            f"agent '{node.agent}', task {node.task_id}: a completion of policy '{candidate.completion.policy}' has "
            "text but no tokens, and nothing can be learnt from it"
        )


def _advantage(task_id: str, advantage: float | None) -> float:
    if advantage is None:
        raise ValueError(f"a candidate of task {task_id} has no advantage: credit must come before routing")
    return advantage
