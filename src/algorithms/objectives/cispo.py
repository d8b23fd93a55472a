"""CISPO's surrogate: clipped token weights."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .base import Objective


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
