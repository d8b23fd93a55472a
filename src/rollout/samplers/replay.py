"""The replay sampler: counterfactual messages and their continuations (C3, arXiv 2603.06859)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from statistics import fmean
from typing import Any

from ...envs.base import StepResult, TeamEnv
from ...experience import Completion, Episode, Node, Topology
from ..playing import Step, advance, gather
from .sampler import EpisodeSampler, MixingSampler, check_at_least, check_forkable, max_steps
from .task_rollout import (
    Said,
    TaskRollout,
    auxiliary,
    extend,
    first_texts,
    said_with,
)


@dataclass
class Continuation:
    """A message in its context, and the episode played on from it to the end."""

    result: StepResult
    """Of the message itself."""
    team_return: float
    """From the message to the end."""
    auxiliary: list[tuple[int, Completion]]
    """The completions that followed."""
    env_steps: int


Ends = dict[tuple[int, int], Continuation]
"""Of an agent's messages at a step: by message and continuation."""
Played = tuple[Step, dict[str, Ends]]
"""A step of the main episode, and by agent the ends of its messages."""


class ReplaySampler(MixingSampler, EpisodeSampler):
    """One main episode per task; at each of its messages, K - 1 alternatives from the same prompt, each played on to
    the end of an episode of its own.

    A candidate's team reward is what the team earned from its message on, the mean over ``continuations``: its context
    is frozen, the simultaneous messages of other agents are kept, and the following ones are sampled from the same
    policies with the main episode's seeds, so that two messages of equal tokens have equal ends.  Its local reward is
    its own message's.  The main episode goes on with a candidate that was drawn like the others, not with the best; the
    messages of continuations are auxiliary: they cost, and no policy is trained on them.

    With ``removal`` each message is also removed: that text (``""``: silence) takes its place, the episode is played on
    as after a candidate, with the same seeds, and ``alpha`` times what the team then earned is the node's ``removed``.

    An episode of S messages costs K S completions and, in a world of one agent per step, (K - 1) S (S - 1) / 2 more;
    with ``removal`` K S (S - 1) / 2 in all beside the K S.
    """

    topology: Topology = "replay"

    def __init__(
        self,
        *,
        continuations: int = 1,
        removal: str | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        check_at_least(1, continuations=continuations)
        if not isinstance(removal, str | None):
            raise ValueError(f"algorithm.sampler.removal must be a text or null, got {removal!r}")
        self.continuations, self.removal = continuations, removal

    def check(self, world: TeamEnv) -> None:
        check_forkable(world)

    def max_completions(self, world: TeamEnv) -> Mapping[str, int]:
        count: Counter[str] = Counter()
        steps = max_steps(world)
        for index, acting in enumerate(steps):
            count.update(dict.fromkeys(acting, self.k))
            messages = self.k + (self.removal is not None)
            continuations = len(acting) * (messages * self.continuations - 1)
            for later in steps[index + 1 :]:
                count.update(dict.fromkeys(later, continuations))
        return count

    async def _play(self, world: TeamEnv, rollout: TaskRollout) -> Episode:
        main = [step async for step in rollout.play_on(await rollout.start(world), self.k, 0)]
        said = accumulate((said_with(step.said, 0) for step in main), initial=())
        played = await gather(*map(partial(self._with_ends, rollout), main, said))
        rewards = [step.transition.team_return for step, _ in played]
        episode = Episode(rollout.task, [], [], env_steps=len(played))
        for index, (step, ends) in enumerate(played):
            nodes = []
            for agent, own in ends.items():
                own[0, 0].team_return = sum(rewards[index:])
                nodes.append(self._node(rollout, step, agent, own))
                for continuation in own.values():
                    episode.auxiliary += continuation.auxiliary
                    episode.env_steps += continuation.env_steps
            is_last = index + 1 == len(played)
            extend(episode, nodes, 0, step.transition.outcome(sum(rewards)) if is_last else None)
        return episode

    async def _with_ends(self, rollout: TaskRollout, step: Step, after: Said) -> Played:
        ends = await gather(*(self._ends(rollout, step, after, agent) for agent in step.said))
        return step, dict(zip(step.said, ends, strict=True))

    async def _ends(self, rollout: TaskRollout, step: Step, after: Said, agent: str) -> Ends:
        """Of the messages of ``agent`` at ``step``; what the team earns in the main episode is not known yet."""
        answer, texts = step.said[agent], first_texts(step.said)
        others = (*after, *(each for each in said_with(step.said, 0) if each[0] != agent))
        ends = {(0, 0): Continuation(step.transition.result, 0.0, [], 0)}  # the main episode itself
        messages = [(completion.text, (*others, (agent, completion))) for completion in answer.completions]
        if self.removal is not None:
            messages.append((self.removal, others))
        places = [(c, i) for c in range(len(messages)) for i in range(self.continuations) if (c, i) not in ends]
        replays = (_play_on(rollout, step.env, texts | {agent: messages[c][0]}, i, messages[c][1]) for c, i in places)
        return ends | dict(zip(places, await gather(*replays), strict=True))

    def _node(self, rollout: TaskRollout, step: Step, agent: str, ends: Ends) -> Node:
        """The node of ``agent`` at ``step``."""
        answer, count = step.said[agent], len(ends) // self.continuations
        teams = [fmean(ends[c, i].team_return for i in range(self.continuations)) for c in range(count)]
        candidates = []
        for c, completion in enumerate(answer.completions):
            result = ends[c, 0].result
            candidates.append(rollout.candidate(agent, completion, result.local[agent], teams[c], result.info))
        node = rollout.node(step.env, agent, answer, candidates)
        if self.removal is not None:
            node.removed = self.mix.alpha * teams[-1]
        return node


async def _play_on(
    rollout: TaskRollout, env: TeamEnv, texts: Mapping[str, str], index: int, after: Said
) -> Continuation:
    """Act ``texts`` in the state of ``env``, then play on to the end: continuation ``index`` of a message.  ``after``
    is what was said up to then, ``texts`` included, but for a message that was removed.

    Its requests have the keys of the main episode at the same turn (``index`` 0), or of other continuations with that
    index, and so draw alike in states that are alike.
    """
    transition = await advance(env.fork(), texts)
    continuation = Continuation(transition.result, transition.team_return, [], 1)
    async for step in rollout.play_on(transition.env, 1, index, after=after):
        continuation.auxiliary += auxiliary(step.said)
        continuation.team_return += step.transition.team_return
        continuation.env_steps += 1
    return continuation
