"""A policy's training configuration: objective, optimizer, temperature, and the settings of an update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch.optim.lr_scheduler import LRScheduler

from ...algorithms.objectives import Objective
from ...experience import TokenBatch
from .settings import UpdateSettings

MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Takes parameters."""

MakeScheduler = Callable[[torch.optim.Optimizer], LRScheduler]


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
