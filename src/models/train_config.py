"""A policy's training configuration: objective, optimizer, temperature, and the settings of an update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.optim.lr_scheduler import LRScheduler

from ..algorithms.objectives import Objective
from .update_settings import UpdateSettings

MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Takes parameters."""

MakeScheduler = Callable[[torch.optim.Optimizer], LRScheduler]


@dataclass(frozen=True, kw_only=True)
class PolicyTrainConfig:
    """Objective, optimizer and schedule of one policy.  ``optimizer`` takes parameters, ``scheduler`` an optimizer.

    ``temperature`` is the sampling temperature: the learner's log-probabilities are those of the distribution that the
    engine samples from.
    """

    objective: Objective
    optimizer: MakeOptimizer
    scheduler: MakeScheduler
    temperature: float = 1.0
    update: UpdateSettings = field(default_factory=UpdateSettings)

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ValueError(f"training samples at a temperature above 0, got {self.temperature}")
