"""The policy-gradient objectives: a surrogate per token, its aggregation, corrections and regularisers.

:class:`Objective` holds what all of them share; :class:`ClippedObjective` is the surrogate of PPO, GRPO, AT-GRPO, DAPO
and GSPO, :class:`PolicyGradient` that of REINFORCE, RLOO and MAGRPO, :class:`Cispo` has clipped token weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from ...errors import AboveZero, Natural, NotNegative, check_fields

Normalisation = Literal["sequence_mean", "token_mean", "constant", "sequence_sum"]
Level = Literal["token", "sequence"]
Mode = Literal["truncate", "mask"]
Estimator = Literal["k1", "k2", "k3"]
KlPlace = Literal["loss", "reward", "credit"]


@dataclass  # not frozen: Fabric converts the fields under some precisions
class ObjectiveOutput:
    """``loss`` is a scalar to descend; ``clipped`` and ``tokens`` count completion tokens.

    ``approx_kl_nats`` and ``behaviour_kl_nats`` sum, over tokens, the estimate ``ratio - 1 - log ratio`` (k3,
    http://joschu.net/blog/kl-approx.html) of two divergences: of the learner now from the learner at the update's
    start, and of the latter from the behaviour policy.  ``reference_kl_nats`` sums k3 of the learner now from the
    reference, ``entropy_nats`` the entropy of its next-token distribution; each 0 where the objective does not use it.
    ``drift`` is (B, C), nats: the learner at the update's start less the behaviour policy, 0 on padding.
    """

    loss: Tensor
    clipped: Tensor
    approx_kl_nats: Tensor
    behaviour_kl_nats: Tensor
    tokens: Tensor
    reference_kl_nats: Tensor
    entropy_nats: Tensor
    drift: Tensor


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """L = - sum_b w_b / n_b * sum_t [ c_bt g_bt - kl * k(pi || reference)_bt + entropy * H_bt ].

    ``g`` is the surrogate of a subclass.  With the router's w_b = 1 / (G K), ``normalisation`` says:

    - ``sequence_mean``: n_b = \\|o_b\\|, the mean over a completion's tokens, then over candidates, then groups (GRPO,
      AT-GRPO);
    - ``token_mean``: every token of the mini-batch weighs the same (DAPO, arXiv 2503.14476, equation 8): the packing
      makes w_b = \\|o_b\\| / sum \\|o\\|, over all its samples, and n_b = \\|o_b\\|;
    - ``constant``: n_b = ``length`` (Dr. GRPO, arXiv 2503.20783); 0 is the policy's ``sampling.train.max_tokens``;
    - ``sequence_sum``: n_b = 1 (MAGRPO, RLOO).

    Truncated importance sampling, on with ``importance_cap`` > 0: c is the ratio of learner at the update's start to
    behaviour policy, a constant, of a token or (``importance_level=sequence``) of the whole completion; clamped to
    [``importance_floor``, ``importance_cap``] (``importance_mode=truncate``; arXiv 2508.09033's TIS) or set to 0 beyond
    them (``mask``: IcePop, sequence masking).  Otherwise c = 1.

    ``kl`` > 0 holds the learner to the reference, the policy's weights at the run's start, by an estimate of the
    divergence from d = log pi - log reference: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d.  ``kl_in=loss``: as above,
    not times c (GRPO's k3, arXiv 2402.03300, equation 4).  ``kl_in=reward``: the advantage of token t loses kl times
    the sum of k from t on, at the update's start, a constant; no baseline and no normalisation contains it, which
    leaves its expected gradient unchanged.  ``kl_in=credit``: the credit rule takes it off before it normalises
    (REINFORCE++, arXiv 2501.03262), and the advantages of tokens contain it.
    """

    normalisation: Normalisation = "sequence_mean"
    length: Natural = 0
    importance_cap: NotNegative = 0.0
    importance_floor: NotNegative = 0.0
    importance_level: Level = "token"
    importance_mode: Mode = "truncate"
    kl: NotNegative = 0.0
    kl_estimator: Estimator = "k3"
    kl_in: KlPlace = "loss"
    entropy: NotNegative = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "algorithm.objective.")
        if self.importance_floor and self.importance_floor >= self.importance_cap:
            raise ValueError(
                f"algorithm.objective.importance_floor={self.importance_floor} must lie below "
                f"importance_cap={self.importance_cap}"
            )
        if not self.importance_cap and (self.importance_mode, self.importance_level) != ("truncate", "token"):
            raise ValueError(
                f"algorithm.objective.importance_mode={self.importance_mode} and "
                f"importance_level={self.importance_level} have no effect with importance_cap=0; give a cap, such as 2"
            )
        if self.length and self.normalisation != "constant":
            raise ValueError(
                f"algorithm.objective.length={self.length} has no effect with "
                f"normalisation={self.normalisation}; give 0"
            )
        if self.kl and self.kl_in == "credit" and self.kl_estimator != "k1":
            raise ValueError(f"algorithm.objective.kl_in=credit is for kl_estimator=k1, got {self.kl_estimator}")
        if self.kl and self.kl_in == "loss" and self.kl_estimator == "k1":
            raise ValueError(
                "algorithm.objective.kl_estimator=k1 with kl_in=loss: the gradient of k1 is 0 on average, so it would "
                "have no effect; give k2 or k3, or kl_in=reward"
            )

    @property
    def every_sample(self) -> bool:
        """Whether samples with advantage 0 have a gradient too."""
        return self.kl > 0 or self.entropy > 0

    def sized(self, max_tokens: int) -> Self:
        """The objective of a policy whose completions have at most ``max_tokens`` tokens."""
        if self.normalisation == "constant" and not self.length:
            return replace(self, length=max_tokens)
        return self

    @abstractmethod
    def surrogate(self, log_ratio: Tensor, logprobs: Tensor, advantages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C) the gain g of each token, and (B, C) bool, whether it was clipped.

        ``log_ratio`` (B, C), learner now over learner at the update's start, and ``logprobs`` (B, C) are 0 where
        ``mask`` is False; ``advantages`` are (B, C) or (B, 1).
        """

    def __call__(
        self,
        logprobs: Tensor,
        old_logprobs: Tensor,
        behaviour_logprobs: Tensor,
        advantages: Tensor,
        weights: Tensor,
        mask: Tensor,
        reference_logprobs: Tensor | None = None,
        entropies: Tensor | None = None,
    ) -> ObjectiveOutput:
        """All log-probabilities are (B, C) float, nats; ``mask`` (B, C) bool, True on completion tokens; ``advantages``
        (B,) or (B, C) and ``weights`` (B,) float; ``entropies`` (B, C) float, nats.  Where ``mask`` is False, values
        have no effect, not even NaN.  ``reference_logprobs`` is needed where ``kl`` is above 0, ``entropies`` where
        ``entropy`` is.
        """
        zero = torch.zeros_like(weights).sum()
        log_ratio = torch.where(mask, logprobs - old_logprobs, 0.0)
        drift = torch.where(mask, old_logprobs - behaviour_logprobs, 0.0).detach()
        advantage = advantages if advantages.dim() == 2 else advantages[:, None]
        if self.kl:
            assert reference_logprobs is not None, "algorithm.objective.kl needs reference log-probabilities"
            distance = torch.where(mask, logprobs - reference_logprobs, 0.0)
            if self.kl_in == "reward":
                start = self._estimate((distance - log_ratio).detach())
                advantage = advantage - self.kl * start.flip(1).cumsum(1).flip(1)  # the sum from each token on
        gain, clipped = self.surrogate(log_ratio, torch.where(mask, logprobs, 0.0), advantage, mask)
        if self.importance_cap:
            gain = gain * self._correction(drift)
        if self.kl and self.kl_in == "loss":
            gain = gain - self.kl * self._estimate(distance)
        if self.entropy:
            assert entropies is not None, "algorithm.objective.entropy needs entropies"
            gain = gain + self.entropy * torch.where(mask, entropies, 0.0)
        loss = -(weights * torch.where(mask, gain, 0.0).sum(dim=1) / self._divisor(mask)).sum()
        with torch.no_grad():  # all terms are 0 where mask is False
            return ObjectiveOutput(
                loss=loss,
                clipped=(clipped & mask).sum(),
                approx_kl_nats=_k3(-log_ratio).sum(),
                behaviour_kl_nats=_k3(-drift).sum(),
                tokens=mask.sum(),
                reference_kl_nats=_k3(distance).sum() if self.kl else zero,
                entropy_nats=zero if entropies is None else torch.where(mask, entropies, 0.0).sum(),
                drift=drift,
            )

    def _divisor(self, mask: Tensor) -> Tensor | int:
        """(B,) or one for all: the divisor n of a completion's sum over tokens."""
        if self.normalisation == "sequence_sum":
            return 1
        if self.normalisation == "constant":
            if not self.length:
                raise ValueError("algorithm.objective.length is 0: the constant of normalisation=constant is not known")
            return self.length
        return mask.sum(dim=1).clamp(min=1)

    def loss_weight(self, weight: float, tokens: int) -> float:
        """The sum of the weights that the tokens of a completion have in the loss, up to a factor that all completions
        of a policy have: of a completion of ``tokens`` tokens, to which the router gave ``weight``.
        """
        if self.normalisation == "sequence_mean":
            return weight
        return float(tokens) if self.normalisation == "token_mean" else weight * tokens

    def importance(self, drift: Tensor) -> tuple[Tensor, Tensor]:
        """The ratio of learner at the update's start to behaviour policy, (B, C) or (B, 1), and whether truncated
        importance sampling truncates or masks it.
        """
        ratio = (drift if self.importance_level == "token" else drift.sum(dim=1, keepdim=True)).exp()
        beyond = ~((ratio >= self.importance_floor) & (ratio <= self.importance_cap))
        return ratio, beyond if self.importance_cap else torch.zeros_like(beyond)

    def _correction(self, drift: Tensor) -> Tensor:
        """(B, C) or (B, 1): the factor c of a token's gain."""
        ratio, beyond = self.importance(drift)
        if self.importance_mode == "truncate":
            return ratio.clamp(min=self.importance_floor, max=self.importance_cap)
        return torch.where(beyond, 0.0, ratio)

    def _estimate(self, distance: Tensor) -> Tensor:
        """(B, C) nats; 0 where ``distance`` is 0."""
        if self.kl_estimator == "k1":
            return distance
        return distance.square() / 2 if self.kl_estimator == "k2" else _k3(distance)


@dataclass(frozen=True, kw_only=True)
class ClippedObjective(Objective):
    """g_bt = min(rho_bt A_b, clip(rho_bt, 1 - clip, 1 + clip_high) A_b): PPO's surrogate (arXiv 1707.06347, equation
    7), as GRPO and AT-GRPO use it.

    ``rho`` is the importance ratio between the learner now and the learner at the update's start, of a token, or with
    ``ratio=sequence`` the geometric mean over the completion's tokens (GSPO, arXiv 2507.18071, equations 5 to 7).
    ``clip_high`` (null: as ``clip``) is DAPO's upper range (arXiv 2503.14476, equation 10).  ``dual_clip`` c > 1 bounds
    g from below by c A_b where A_b < 0 (arXiv 1912.09729, equation 5); 0 does not.
    """

    clip: Annotated[float, Field(gt=0, lt=1), "in (0, 1)"] = 0.2
    clip_high: AboveZero | None = None
    ratio: Level = "token"
    dual_clip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
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


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(Objective):
    """g_bt = A_b log pi_bt: REINFORCE, with neither ratio nor clipping; on the sequence sum it is MAGRPO's and RLOO's
    (arXiv 2508.04652, equation 2; arXiv 2402.14740, equation 7).

    It is meant for one optimizer step per iteration: nothing corrects for the steps before.
    """

    def surrogate(self, log_ratio: Tensor, logprobs: Tensor, advantages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return advantages * logprobs, torch.zeros_like(mask)


@dataclass(frozen=True, kw_only=True)
class Cispo(Objective):
    """g_bt = sg(clip(rho_bt, ratio_floor, ratio_cap)) A_b log pi_bt, where sg stops the gradient: the weight of a token
    is clipped, never its gradient (CISPO, MiniMax-M1, arXiv 2506.13585, equations 4 and 5; its runs have no lower
    bound).
    """

    ratio_cap: float = 5.0
    ratio_floor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ratio_floor < 1 <= self.ratio_cap:
            raise ValueError(
                "algorithm.objective: ratio_floor must be in [0, 1) and ratio_cap at least 1, got "
                f"{self.ratio_floor} and {self.ratio_cap}"
            )

    def surrogate(self, log_ratio: Tensor, logprobs: Tensor, advantages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        ratio = log_ratio.exp().detach()
        limited = ratio.clamp(self.ratio_floor, self.ratio_cap)
        return limited * advantages * logprobs, limited != ratio


def _k3(distance: Tensor) -> Tensor:
    """exp(-d) - 1 + d, with d = log p - log q of a draw from p: at least 0, and KL(p || q) on average."""
    return (-distance).exp() - 1 + distance
