"""The clipped surrogate of PPO, GRPO, AT-GRPO, DAPO and GSPO."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Level, Objective


@dataclass(frozen=True, kw_only=True)
class ClippedObjective(Objective):
    """g_bt = min(rho_bt A_b, clip(rho_bt, 1 - clip, 1 + clip_high) A_b): PPO's surrogate (arXiv 1707.06347, equation
    7), as GRPO and AT-GRPO use it.

    ``rho`` is the importance ratio between the learner now and the learner at the update's start, of a token, or with
    ``ratio=sequence`` the geometric mean over the completion's tokens (GSPO, arXiv 2507.18071, equations 5 to 7).
    ``clip_high`` (null: as ``clip``) is DAPO's upper range (arXiv 2503.14476, equation 10).  ``dual_clip`` c > 1 bounds
    g from below by c A_b where A_b < 0 (arXiv 1912.09729, equation 5); 0 does not.
    """

    clip: float = 0.2
    clip_high: float | None = None
    ratio: Level = "token"
    dual_clip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.clip < 1:
            raise ValueError(f"algorithm.objective.clip must be in (0, 1), got {self.clip}")
        if self.clip_high is not None and self.clip_high <= 0:
            raise ValueError(f"algorithm.objective.clip_high must be above 0, got {self.clip_high}")
        if self.ratio not in ("token", "sequence"):
            raise ValueError(f"algorithm.objective.ratio must be token or sequence, got {self.ratio}")
        if self.dual_clip and self.dual_clip <= 1:
            raise ValueError(f"algorithm.objective.dual_clip must be above 1 (or 0: off), got {self.dual_clip}")

    def surrogate(self, log_ratio: Tensor, logprobs: Tensor, advantages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        if self.ratio == "sequence":
            log_ratio = log_ratio.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
        ratio = log_ratio.exp()
        limited = ratio.clamp(1 - self.clip, 1 + (self.clip if self.clip_high is None else self.clip_high))
        gain = torch.minimum(ratio * advantages, limited * advantages)
        clipped = ratio * advantages > limited * advantages
        if self.dual_clip:
            least = torch.where(advantages < 0, self.dual_clip * advantages, -torch.inf)
            clipped = clipped | (gain < least)
            gain = torch.maximum(gain, least)
        return gain, clipped
