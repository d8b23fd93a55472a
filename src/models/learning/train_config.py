"""A policy's training configuration: objective, optimizer, temperature, and the settings of an update."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from ...algorithms.objectives import Objective
from ...experience import TokenBatch
from .settings import UpdateSettings

MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Takes parameters."""

MakeScheduler = Callable[[torch.optim.Optimizer], LRScheduler]


class WarmupCosine(LambdaLR):
    """transformers' ``get_cosine_with_min_lr_schedule_with_warmup_lr_rate``, whose module takes two seconds to import:
    a plan makes the schedule, too.  The learning rate rises evenly from ``warmup_lr_rate`` of it, then falls along a
    cosine, and stays at ``min_lr_rate`` of it.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        num_warmup_steps: int,
        num_training_steps: int,
        min_lr_rate: float,
        warmup_lr_rate: float,
    ) -> None:
        def share(step: int) -> float:
            if step < num_warmup_steps:
                return warmup_lr_rate + (1 - warmup_lr_rate) * step / max(1, num_warmup_steps - 1)
            progress = (step - num_warmup_steps + 1) / max(1, num_training_steps - num_warmup_steps)
            return min_lr_rate + (1 - min_lr_rate) * (1 + math.cos(math.pi * min(1, progress))) / 2

        super().__init__(optimizer, share)


@dataclass(frozen=True, kw_only=True)
class PolicyTrainConfig:
    """Objective, optimizer and schedule of one policy.  ``optimizer`` takes parameters, ``scheduler`` an optimizer.

    ``temperature`` is the sampling temperature, ``temperatures`` those of the agents that have another: the learner's
    log-probabilities are those of the distribution that the engine samples from.
    """

    objective: Objective
    optimizer: MakeOptimizer
    scheduler: MakeScheduler
    temperature: float = 1.0
    temperatures: Mapping[str, float] = field(default_factory=dict)
    update: UpdateSettings = field(default_factory=UpdateSettings)

    def __post_init__(self) -> None:
        for temperature in (self.temperature, *self.temperatures.values()):
            if temperature <= 0:
                raise ValueError(f"training samples at a temperature above 0, got {temperature}")

    def temperature_of(self, batch: TokenBatch) -> float | torch.Tensor:
        """The temperature of each candidate of ``batch``, by its agent: (B,) float64; a number where all have one."""
        if not self.temperatures:
            return self.temperature
        values = [self.temperatures.get(agent, self.temperature) for agent, _ in batch.places]
        return torch.tensor(values, dtype=torch.float64).to(batch.weights.device, non_blocking=True)
