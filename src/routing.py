"""The router: agent -> policy, and which candidates go to which policy's batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

from .experience import Candidate, Episode, Node, Sample, Weighting


class TeamMapError(ValueError):
    """Agents and policies that do not fit together."""


class Router:
    """``team`` maps agent to policy, many to one; it must cover the world's ``agents`` and use every policy.

    Candidates of ``frozen`` policies are not routed: these policies do not learn; remote and scripted ones are frozen,
    too.
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
            raise TeamMapError(f"no policy learns: {', '.join(policies)} {verb} frozen, remote or scripted")
        self.team, self.policies = dict(team), tuple(policies)
        self.learning = tuple(policy for policy in policies if policy not in frozen)

    def route(
        self, episodes: Sequence[Episode], key: Callable[[Node], Hashable], weight: Weighting = "message"
    ) -> dict[str, list[list[Sample]]]:
        """The samples of each policy that learns, one list per group; ``key`` (the credit rule's) names a node's group.
        Groups without any advantage are routed too: they count in the mean.

        ``weight`` (the credit rule's) says how much a candidate counts:

        - ``message``: 1 / (groups of the policy * the policy's candidates in the group), so that the loss is a mean
          over candidates, then over groups.  The denominators depend on how long the episodes were.
        - ``episode``: the probability of its node / (tasks * episodes of the task * candidates of the node), so that
          the loss is a mean over tasks, then over samples, of the sum over a sample's messages.  Of a chain that is
          1 / (tasks * K), of a full tree's node of turn t 1 / (tasks * K^t * K).  No denominator depends on the
          messages, so that an unbiased advantage gives an unbiased gradient.

        Raises ``ValueError`` for a candidate without an advantage, or without tokens, as a remote policy's.
        """
        groups: dict[str, dict[Hashable, list[tuple[Node, Candidate, float]]]] = {p: {} for p in self.learning}
        played = Counter(episode.task.task_id for episode in episodes)
        for episode in episodes:
            whole = 1 / (len(played) * played[episode.task.task_id])
            for node, reach in zip(episode.nodes, episode.reach, strict=True):
                if (policy := self.team[node.agent]) not in groups:
                    continue
                for candidate in node.candidates:
                    _check_learnable(node, candidate)
                    part = whole * reach / len(node.candidates)
                    groups[policy].setdefault(key(node), []).append((node, candidate, part))
        routed: dict[str, list[list[Sample]]] = {}
        for policy, own in groups.items():
            shares = [1 / (len(own) * len(members)) for members in own.values()]
            routed[policy] = [
                [
                    _sample(policy, node, candidate, share if weight == "message" else part, share)
                    for node, candidate, part in members
                ]
                for members, share in zip(own.values(), shares, strict=True)
            ]
        return routed


def _sample(policy: str, node: Node, candidate: Candidate, weight: float, share: float) -> Sample:
    return Sample(
        policy=policy,
        prompt_ids=node.prompt_ids,
        token_ids=candidate.completion.token_ids,
        behaviour_logprobs=candidate.completion.logprobs,
        advantage=_advantage(node.task_id, candidate.advantage),
        weight=weight,
        agent=node.agent,
        turn=node.turn,
        share=share,
        penalties=candidate.penalties,
        version=candidate.completion.version,
        mixed_versions=bool(candidate.completion.versions),
    )


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
