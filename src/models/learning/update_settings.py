"""The settings of an update; nothing here imports torch, so that they are checked at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """``mini_batches`` optimizer steps per epoch, ``epochs`` passes over an iteration's samples, gradients accumulated
    over micro-batches of at most ``max_tokens`` tokens and clipped to the norm ``clip_norm``.  ``live_groups_only``
    leaves groups without any advantage out of the loss's mean.

    Of the prompts whose candidates no step learns from (their advantage is 0), this ``mismatch_share`` is scored for
    the mismatch statistics, which would otherwise cover only samples with an advantage.  The prompts are drawn anew at
    each update, for each agent and turn at least one.  Scoring costs a forward pass.  1: all; 0: none.
    """

    mini_batches: int = 1
    epochs: int = 1
    max_tokens: int = 16_384
    clip_norm: float = 1.0
    live_groups_only: bool = False
    mismatch_share: float = 0.25

    def __post_init__(self) -> None:
        for key in ("mini_batches", "epochs", "max_tokens"):
            if (value := getattr(self, key)) < 1:
                raise ValueError(f"algorithm.update.{key} must be at least 1, got {value}")
        if self.clip_norm <= 0:
            raise ValueError(f"algorithm.update.clip_norm must be above 0, got {self.clip_norm}")
        if not 0 <= self.mismatch_share <= 1:
            raise ValueError(f"algorithm.update.mismatch_share must be in [0, 1], got {self.mismatch_share}")
