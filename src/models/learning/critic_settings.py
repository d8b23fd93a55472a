"""The settings of a critic's update; nothing here imports torch, so that they are checked at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """``epochs`` passes over an iteration's returns, ``mini_batches`` optimizer steps in each, gradients accumulated
    over micro-batches of at most ``max_tokens`` tokens and clipped to the norm ``clip_norm``.
    """

    mini_batches: int = 1
    epochs: int = 1
    max_tokens: int = 16_384
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        for key in ("mini_batches", "epochs", "max_tokens"):
            if (value := getattr(self, key)) < 1:
                raise ValueError(f"algorithm.critic.{key} must be at least 1, got {value}")
        if self.clip_norm <= 0:
            raise ValueError(f"algorithm.critic.clip_norm must be above 0, got {self.clip_norm}")
