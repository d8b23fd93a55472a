"""The mix of a candidate's rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ...experience import Completion, Sampling

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
