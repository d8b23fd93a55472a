"""GiGPO: group-in-group credit by anchor states (arXiv 2505.10978)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from ...experience import Episode
from .base import Baseline, Share
from .checks import CreditError
from .grpo import Grpo, episode_return


class Gigpo(Grpo):
    """A = A^E + omega * A^S (equation 8).

    A^E compares the returns of a task's K episodes, as :class:`Grpo` does (equation 3).  A^S compares the returns R of
    the messages that an agent sent in one and the same state of the world (``state_key``, the anchor), across those
    episodes and within them (equations 6 and 7); for a state that was met once it is 0.

    R of a message is its own part of the reward (local, length), and the team's rewards from its turn on:
    R = own + alpha * sum over turns u >= t of gamma^(u - t) * team_u.  The later local rewards of the same agent are
    left out, so that a longer failure never earns more.  ``alpha`` is the sampler's.  ``normalise=false`` leaves both
    divisions out (the paper's F_norm = 1).
    """

    def __init__(
        self,
        *,
        omega: float = 1.0,
        gamma: float = 0.95,
        alpha: float = 1.0,
        baseline: Baseline = "mean",
        normalise: bool = True,
        std_floor: float = 1e-6,
    ) -> None:
        super().__init__(baseline=baseline, normalise=normalise, std_floor=std_floor)
        if omega < 0 or not 0 <= gamma <= 1:
            raise ValueError(f"algorithm.credit: omega must be >= 0 and gamma in [0, 1], got {omega} and {gamma}")
        self.omega, self.gamma, self.alpha = omega, gamma, alpha

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        yield from super().shares(episode)
        episode_return(episode)  # raises where the episode is no chain
        # The team's reward of a turn is that of the message which ends it: the last one.
        team_rewards = {node.turn: node.candidates[-1].team for node in episode.nodes}
        for node, candidate in episode.candidates():
            if node.state is None:
                raise CreditError(f"episode {episode.name}: the sampler recorded no state of turn {node.turn}")
            team = sum(
                self.gamma ** (turn - node.turn) * reward for turn, reward in team_rewards.items() if turn >= node.turn
            )
            value = candidate.reward - self.alpha * candidate.team + self.alpha * team
            yield ("state", node.task_id, node.agent, node.state), Share(value, (candidate,), self.omega)
