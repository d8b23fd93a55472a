"""The clipped policy-gradient objective (PPO's surrogate, arXiv 1707.06347, as GRPO and AT-GRPO use it)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass  # not frozen: Fabric converts the fields under some precisions
class ObjectiveOutput:
    """``loss`` is a scalar to descend; ``clipped`` and ``tokens`` count completion tokens.

    ``approx_kl_nats`` and ``behaviour_kl_nats`` sum, over tokens, the estimate ``ratio - 1 - log ratio`` (k3,
    http://joschu.net/blog/kl-approx.html) of two divergences: of the learner now from the learner at the update's
    start, and of the latter from the behaviour policy.
    """

    loss: Tensor
    clipped: Tensor
    approx_kl_nats: Tensor
    behaviour_kl_nats: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class ClippedObjective:
    """L = - sum_b w_b / |o_b| * sum_t min(rho_bt A_b, clip(rho_bt, 1 - clip, 1 + clip) A_b).

    ``rho`` is the token-level importance ratio between the learner now and the learner at the update's start.  With
    w_b = 1 / (G K), this is AT-GRPO's loss: the mean over a completion's tokens, then over the K candidates, then over
    the policy's G groups.  ``importance_cap`` > 0 multiplies each token by min(learner at the update's start /
    behaviour policy, cap): truncated importance sampling, for engines whose probabilities drift from the learner's.
    """

    clip: float = 0.2
    importance_cap: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.clip < 1:
            raise ValueError(f"algorithm.objective.clip must be in (0, 1), got {self.clip}")
        if self.importance_cap < 0:
            raise ValueError(f"algorithm.objective.importance_cap must be >= 0, got {self.importance_cap}")

    def __call__(
        self,
        logprobs: Tensor,
        old_logprobs: Tensor,
        behaviour_logprobs: Tensor,
        advantages: Tensor,
        weights: Tensor,
        mask: Tensor,
    ) -> ObjectiveOutput:
        """All log-probabilities are (B, C) float, nats; ``mask`` (B, C) bool, True on completion tokens; ``advantages``
        and ``weights`` (B,) float.  What stands where ``mask`` is False never matters.
        """
        log_ratio = torch.where(mask, logprobs - old_logprobs, 0.0)
        ratio = log_ratio.exp()
        advantage = advantages[:, None]
        limited = ratio.clamp(1 - self.clip, 1 + self.clip)
        gain = torch.minimum(ratio * advantage, limited * advantage)
        drift = torch.where(mask, old_logprobs - behaviour_logprobs, 0.0).detach()
        if self.importance_cap:
            gain = gain * drift.exp().clamp(max=self.importance_cap)
        lengths = mask.sum(dim=1).clamp(min=1)
        loss = -(weights * torch.where(mask, gain, 0.0).sum(dim=1) / lengths).sum()
        with torch.no_grad():
            clipped = (ratio * advantage > limited * advantage) & mask
            step_kl = (ratio - 1 - log_ratio).sum()  # both terms are 0 where mask is False
            behaviour_kl = (drift.exp() - 1 - drift).sum()
        return ObjectiveOutput(loss, clipped.sum(), step_kl, behaviour_kl, mask.sum())
