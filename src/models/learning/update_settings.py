"""The settings of an update; nothing here imports torch, so that they are checked at once."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import AboveZero, Positive, Share, check_fields


@dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """``mini_batches`` optimizer steps per epoch, ``epochs`` passes over an iteration's samples, gradients accumulated
    over micro-batches of at most ``max_tokens`` tokens and clipped to the norm ``clip_norm``.  ``live_groups_only``
    leaves groups without any advantage out of the loss's mean.

    Of the prompts whose candidates no step learns from (their advantage is 0), this ``mismatch_share`` is scored for
    the mismatch statistics, which would otherwise cover only samples with an advantage.  The prompts are drawn anew at
    each update, for each agent and turn at least one.  Scoring costs a forward pass.  1: all; 0: none.
    """

    mini_batches: Positive = 1
    epochs: Positive = 1
    max_tokens: Positive = 16_384
    clip_norm: AboveZero = 1.0
    live_groups_only: bool = False
    mismatch_share: Share = 0.25

    def __post_init__(self) -> None:
        check_fields(self, "algorithm.update.")
