"""The hyperparameters of a base model that is made from demonstrations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch, which takes seconds
    from ..envs.base import Skill


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of a base model.

    Three phases: ``stable_steps`` and then ``decay_steps`` on messages of experts and novices (the model learns the
    skill), at last ``flawed_steps`` on messages that mostly are flawed demonstrators' (the model has the skill, but
    mostly does not use it).  ``expert_share`` and ``last_expert_share`` are the shares of experts' messages before and
    in the last phase; the others are novices' before and flawed demonstrators' in it.  ``batch_size`` is the number of
    messages per step, in ``micro_batches`` sorted by length to save padding.  The learning rates are those of the
    stable phase; they fall linearly to a tenth over the decay phase and stay there.
    """

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    stable_steps: int = 6000
    decay_steps: int = 2250
    flawed_steps: int = 350
    batch_size: int = 96
    micro_batches: int = 2
    learning_rate: float = 3e-3
    muon_learning_rate: float = 0.02
    weight_decay: float = 0.01
    warmup: int = 100
    expert_share: float = 0.8
    last_expert_share: float = 0.12
    seed: int = 0

    @property
    def steps(self) -> int:
        return self.stable_steps + self.decay_steps + self.flawed_steps

    def skill(self, step: int, rng: Random) -> Skill:
        """A demonstrator's skill at ``step``."""
        last_phase = step >= self.stable_steps + self.decay_steps
        if rng.random() < (self.last_expert_share if last_phase else self.expert_share):
            return "expert"
        return "flawed" if last_phase else "novice"

    def lasting(self, steps: int) -> Recipe:
        """The same recipe over ``steps`` in all; each phase keeps its share."""
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        decay, flawed = (round(steps * part / self.steps) for part in (self.decay_steps, self.flawed_steps))
        return replace(self, stable_steps=steps - decay - flawed, decay_steps=decay, flawed_steps=flawed)

    def rate(self, step: int) -> float:
        """The learning rate at ``step`` as a share of its peak."""
        if step < self.stable_steps:
            return min(1.0, (step + 1) / self.warmup)
        return max(0.1, 1 - 0.9 * (step - self.stable_steps) / max(1, self.decay_steps))


WORLD_RECIPE = Recipe(
    layers=2,
    stable_steps=350,
    decay_steps=100,
    flawed_steps=150,
    batch_size=64,
    warmup=50,
    last_expert_share=0.2,
)
"""The recipe for a world of the user's: minutes on one core."""
