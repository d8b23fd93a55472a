"""The settings of a critic's update; nothing here imports torch, so that they are checked at once."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import AboveZero, Positive, check_fields


@dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """``epochs`` passes over an iteration's returns, ``mini_batches`` optimizer steps in each, gradients accumulated
    over micro-batches of at most ``max_tokens`` tokens and clipped to the norm ``clip_norm``.
    """

    mini_batches: Positive = 1
    epochs: Positive = 1
    max_tokens: Positive = 16_384
    clip_norm: AboveZero = 1.0

    def __post_init__(self) -> None:
        check_fields(self, "algorithm.critic.")
