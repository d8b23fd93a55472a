"""GiGPO: group-in-group credit by anchors (arXiv 2505.10978)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Literal

from ...errors import NotNegative
from ...errors import Share as Fraction
from ...experience import Episode
from .base import Share, nodes_by_step, turn_ends
from .grpo import Grpo, episode_return

Anchor = Literal["view", "prompt"]


@dataclass(kw_only=True, eq=False)
class Gigpo(Grpo):
    """A = A^E + omega * A^S (equation 8).

    A^E compares the returns of a task's K episodes, as :class:`Grpo` does (equation 3).  A^S compares the discounted
    returns R of an agent's messages at one and the same anchor, across those episodes and within them (equations 6 and
    7); at an anchor that was met once it is 0.  ``anchor=view``: what the agent sees of the world itself
    (:meth:`~troupe.envs.base.TeamEnv.anchor_key`), without turn, rewards and the messages of team-mates; where the
    world does not tell, and with ``anchor=prompt``, the message's prompt.

    R of a message at turn t: the sum over turns u >= t of gamma^(u - t) * (own_u + alpha * team_u), where own_u is the
    agent's own reward of turn u (local, length) and team_u the team's.  ``alpha`` is the sampler's.  Turns are counted
    by their ends (:func:`.base.turn_ends`), which is the world's count where that never falls.
    ``normalise=false`` leaves both divisions out (the paper's F_norm = 1).
    """

    omega: NotNegative = 1.0
    gamma: Fraction = 0.95
    alpha: float = 1.0
    anchor: Anchor = "view"

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        yield from super().shares(episode)
        episode_return(episode)  # raises where the episode is no chain
        turn, team_rewards, messages = 0, [], []
        steps = nodes_by_step(episode)
        for nodes, ends_turn in zip(steps, turn_ends(steps), strict=True):
            messages += [(turn, node, node.candidates[0]) for node in nodes]
            if ends_turn:
                turn += 1
                team_rewards.append(nodes[0].candidates[0].team)
        own = {(node.agent, at): each.reward - self.alpha * each.team for at, node, each in messages}
        for at, node, candidate in messages:
            value = sum(
                self.gamma ** (later - at) * (own.get((node.agent, later), 0.0) + self.alpha * team_rewards[later])
                for later in range(at, turn)
            )
            by_view = self.anchor == "view" and node.anchor is not None
            anchor = node.anchor if by_view else node.prompt_ids
            yield ("anchor", node.task_id, node.agent, anchor), Share(value, (candidate,), self.omega)
