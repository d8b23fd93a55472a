"""GiGPO: group-in-group credit by anchors (arXiv 2505.10978)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Literal, get_args

from ...experience import Episode, Weighting
from .base import Baseline, Share
from .grpo import Grpo, episode_return

Anchor = Literal["state", "prompt"]


class Gigpo(Grpo):
    """A = A^E + omega * A^S (equation 8).

    A^E compares the returns of a task's K episodes, as :class:`Grpo` does (equation 3).  A^S compares the discounted
    returns R of an agent's messages at one and the same anchor, across those episodes and within them (equations 6 and
    7); at an anchor that was met once it is 0.  ``anchor=state``: the world's ``anchor_key``, which contains neither
    turn nor earlier messages and rewards; where the world has none, and with ``anchor=prompt``, the message's prompt.

    R of a message at turn t: the sum over turns u >= t of gamma^(u - t) * (own_u + alpha * team_u), where own_u is the
    agent's own reward of turn u (local, length) and team_u the team's.  ``alpha`` is the sampler's.
    ``normalise=false`` leaves both divisions out (the paper's F_norm = 1).
    """

    def __init__(
        self,
        *,
        omega: float = 1.0,
        gamma: float = 0.95,
        alpha: float = 1.0,
        anchor: Anchor = "state",
        baseline: Baseline = "mean",
        normalise: bool = True,
        std_floor: float = 1e-6,
        weight: Weighting = "message",
    ) -> None:
        super().__init__(baseline=baseline, normalise=normalise, std_floor=std_floor, weight=weight)
        if omega < 0 or not 0 <= gamma <= 1:
            raise ValueError(f"algorithm.credit: omega must be >= 0 and gamma in [0, 1], got {omega} and {gamma}")
        if anchor not in get_args(Anchor):
            raise ValueError(f"algorithm.credit.anchor must be {' or '.join(get_args(Anchor))}, got {anchor}")
        self.omega, self.gamma, self.alpha, self.anchor = omega, gamma, alpha, anchor

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        yield from super().shares(episode)
        episode_return(episode)  # raises where the episode is no chain
        # The team's reward of a turn is that of the message which ends it: the last one.
        team_rewards = {node.turn: node.candidates[-1].team for node in episode.nodes}
        own = {
            (node.agent, node.turn): candidate.reward - self.alpha * candidate.team
            for node, candidate in episode.candidates()
        }
        for node, candidate in episode.candidates():
            value = sum(
                self.gamma ** (turn - node.turn) * (own.get((node.agent, turn), 0.0) + self.alpha * team)
                for turn, team in team_rewards.items()
                if turn >= node.turn
            )
            by_state = self.anchor == "state" and node.anchor is not None
            anchor = node.anchor if by_state else node.prompt_ids
            yield ("anchor", node.task_id, node.agent, anchor), Share(value, (candidate,), self.omega)
