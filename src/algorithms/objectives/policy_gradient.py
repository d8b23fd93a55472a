"""The plain policy gradient of REINFORCE, RLOO and MAGRPO."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Objective


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(Objective):
    """g_bt = A_b log pi_bt: REINFORCE, with neither ratio nor clipping; on the sequence sum it is MAGRPO's and RLOO's
    (arXiv 2508.04652, equation 2; arXiv 2402.14740, equation 7).

    It is meant for one optimizer step per iteration: nothing corrects for the steps before.
    """

    def surrogate(self, log_ratio: Tensor, logprobs: Tensor, advantages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return advantages * logprobs, torch.zeros_like(mask)
