"""What all samplers do with one task: sample completions, step the world, make nodes with rewards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from ...envs.base import StepResult, TeamEnv
from ...experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Sampling, Task
from ..engines.requests import derive
from ..playing import Answer, Step, Transition, advance, gather, play_on, start_env
from ..policy_client import PolicyClient

TeamReward = Literal["global", "own", "both"]


@dataclass(frozen=True)
class RewardMix:
    """reward = ``alpha`` * team + local + overlong.

    ``team`` is ``algorithm.reward.team``, see :class:`.tree.TreeSampler`.  With ``own``, the outcome of the message
    itself stands in the place of the team's reward, which it is for a message that ends its turn; with ``both``, it is
    added to the local reward.  ``local=False`` leaves the local reward out: outcome-only.  ``overlong`` > 0 is DAPO's
    soft penalty (arXiv 2503.14476, equation 13) for completions that come near ``sampling.max_tokens``: it applies to
    the last share ``overlong`` of them (the paper: 0.2) and falls linearly from 0 to -1 at max_tokens.
    """

    alpha: float = 1.0
    local: bool = True
    overlong: float = 0.0
    team: TeamReward = "own"

    def __post_init__(self) -> None:
        if not isinstance(self.local, bool):
            raise ValueError(f"algorithm.sampler.local must be true or false, got {self.local!r}")
        if not 0 <= self.overlong <= 1:
            raise ValueError(f"algorithm.sampler.overlong must be in [0, 1] (0: no penalty), got {self.overlong}")
        if self.team not in get_args(TeamReward):
            raise ValueError(f"algorithm.reward.team must be {', '.join(get_args(TeamReward))}, got {self.team!r}")
        if self.team != "own" and not self.alpha:
            raise ValueError(
                f"algorithm.reward.team={self.team} samples answers for the team's reward, and "
                "algorithm.sampler.alpha=0 leaves that out; give algorithm.reward.team=own, which samples none"
            )
        if self.team == "both" and not self.local:
            raise ValueError(
                "algorithm.reward.team=both has a message's own outcome as a local reward, and "
                "algorithm.sampler.local=false leaves that out; give algorithm.reward.team=global"
            )

    def own(self, local: float, completion: Completion, sampling: Sampling) -> float:
        """The part of a message's reward that does not depend on the team: its local reward and its length."""
        return local * self.local + self.overlong_of(completion, sampling)

    def __call__(self, team: float, local: float, completion: Completion, sampling: Sampling) -> float:
        return self.alpha * team + self.own(local, completion, sampling)

    def overlong_of(self, completion: Completion, sampling: Sampling) -> float:
        """The penalty of a completion's length, in [-1, 0]."""
        return self.penalty(len(completion.token_ids), sampling.max_tokens)

    def penalty(self, tokens: int, max_tokens: int) -> float:
        """In [-1, 0]."""
        if not self.overlong:
            return 0.0
        cache = self.overlong * max_tokens
        return -max(0.0, tokens - (max_tokens - cache)) / cache


Said = tuple[tuple[str, Completion], ...]
"""The completions that led to a state, oldest first, each with the agent that said it."""


@dataclass(frozen=True)
class TaskRollout:
    """The rollout of one task: the policies of its agents, the seed of every draw, and the mix of rewards."""

    task: Task
    clients: Mapping[str, PolicyClient]
    seed: int
    mix: RewardMix

    async def start(self, world: TeamEnv) -> TeamEnv:
        """A fork of ``world`` at the start of the task."""
        return await start_env(world, self.task, [agent for agent, each in self.clients.items() if each.unscored])

    async def sample(self, env: TeamEnv, agent: str, n: int, *place: int | str, after: Said = ()) -> Answer:
        """``n`` completions of ``agent`` in the state of ``env``, which stays as it is; ``after`` is what led there:
        the agent's own completions are in the prompt as they were sampled.  ``place``: see
        :meth:`..policy_client.PolicyClient.ask`.
        """
        said = [completion for author, completion in after if author == agent]
        return await self.clients[agent].ask(env, agent, self.task, n, self.seed, *place, said=said)

    async def sample_all(self, env: TeamEnv, n: int, *place: int | str, after: Said = ()) -> dict[str, Answer]:
        """:meth:`sample` of each agent that acts now, by agent; all are asked at once."""
        agents = env.next_agents()
        answers = await gather(*(self.sample(env, agent, n, *place, after=after) for agent in agents))
        return dict(zip(agents, answers, strict=True))

    async def play_on(self, env: TeamEnv, n: int, *place: int | str, after: Said = ()) -> AsyncIterator[Step]:
        """The steps from the state of ``env`` to the end, each with ``n`` completions, of which the first goes on."""

        async def ask(now: TeamEnv, agent: str) -> Answer:
            return await self.sample(now, agent, n, *place, after=after)

        async for step in play_on(env, ask):
            after = (*after, *said_with(step.said, 0))
            yield step

    def rng(self, *place: int | str) -> Random:
        """Draws of the sampler itself at ``place``, such as those that break ties."""
        return Random(derive(self.seed, self.task.task_id, *place))

    def reward(self, agent: str, completion: Completion, local: float, team: float) -> float:
        """The mixed reward of a completion of ``agent``."""
        return self.mix(team, local, completion, self.clients[agent].sampling)

    def candidate(
        self,
        agent: str,
        completion: Completion,
        local: float,
        team: float,
        info: Mapping[str, float],
        own_outcome: float = 0.0,
    ) -> Candidate:
        """A completion of ``agent`` with its rewards."""
        reward = self.reward(agent, completion, local + own_outcome, team)
        overlong = self.mix.overlong_of(completion, self.clients[agent].sampling)
        return Candidate(completion, local, team, reward, info=info, overlong=overlong, own_outcome=own_outcome)

    def node(
        self,
        env: TeamEnv,
        agent: str,
        answer: Answer,
        candidates: list[Candidate],
        path: tuple[int, ...] = (),
    ) -> Node:
        """The node of ``agent`` in the state of ``env``: ``candidates`` are the completions of ``answer``."""
        place = self.task.task_id, agent, env.turn
        state, anchor = env.state_key(), env.anchor_key(agent)
        node = Node(*place, answer.prompt.ids, candidates, state=state, anchor=anchor, path=path)
        node.cut, node.retokenised, node.session = answer.prompt.cut, answer.prompt.retokenised, env.session
        node.seconds = answer.seconds
        return node

    def nodes(
        self,
        env: TeamEnv,
        answers: Mapping[str, Answer],
        results: Sequence[StepResult],
        teams: Sequence[float],
    ) -> list[Node]:
        """The node of each agent in ``answers``; the joint action of its completion c had ``results[c]``, and ``alpha``
        weighs ``teams[c]``.
        """
        both = self.mix.team == "both"
        return [
            self.node(
                env,
                agent,
                answer,
                [
                    self.candidate(agent, completion, result.local[agent], team, result.info, both * result.team)
                    for completion, result, team in zip(answer.completions, results, teams, strict=True)
                ],
            )
            for agent, answer in answers.items()
        ]


async def try_aligned(env: TeamEnv, answers: Mapping[str, Answer]) -> list[Transition]:
    """What joint action c, the completions c of all agents, leads to: each tried on a fork of ``env`` of its own."""
    columns = zip(*(answer.completions for answer in answers.values()), strict=True)
    joint_actions = [dict(zip(answers, (each.text for each in column), strict=True)) for column in columns]
    return await gather(*(advance(env.fork(), texts) for texts in joint_actions))


def first_texts(answers: Mapping[str, Answer]) -> dict[str, str]:
    """The joint action of each agent's first completion."""
    return {agent: answer.completions[0].text for agent, answer in answers.items()}


def said_with(answers: Mapping[str, Answer], index: int) -> Said:
    """What is said in the joint action of each agent's completion ``index``."""
    return tuple((agent, answer.completions[index]) for agent, answer in answers.items())


def said_in(nodes: Sequence[Node], members: Sequence[int]) -> Said:
    """What is said in the joint action of the candidates ``members``, one of each node."""
    return tuple((node.agent, node.candidates[c].completion) for node, c in zip(nodes, members, strict=True))


def continued(nodes: Sequence[Node]) -> Said:
    """What is said in an episode without branches that has ``nodes``."""
    return tuple((node.agent, each.completion) for node in nodes for each in node.candidates if each.continued)


def auxiliary(answers: Mapping[str, Answer]) -> list[tuple[int, Completion]]:
    """All completions of ``answers`` as :attr:`.experience.Episode.auxiliary` lists them."""
    return [(len(answer.prompt.ids), each) for answer in answers.values() for each in answer.completions]


def extend(episode: Episode, nodes: Sequence[Node], index: int, outcome: Outcome | None) -> None:
    """Append the ``nodes`` of one step and the joint action of their candidates ``index``, which continue.

    It ends the episode with ``outcome``; where that is None, it leads to the nodes that are appended next.
    """
    first = len(episode.nodes)
    for node in nodes:
        node.parent = first - 1 if first else None
        node.candidates[index].continued = True
    episode.nodes += nodes
    members = {node.agent: (first + i, index) for i, node in enumerate(nodes)}
    episode.edges.append(JointAction(members, len(episode.nodes) if outcome is None else None, outcome))
