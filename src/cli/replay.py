"""Fork a stored episode and play on from there.  The keys are those of ``configs/replay.yaml``."""

from __future__ import annotations

from omegaconf import DictConfig

from ..api.replaying import replay_episode
from ..setup.parts import plain


def run_command(cfg: DictConfig) -> None:
    """``troupe replay``, with the configuration that Hydra has composed."""
    replay_episode(plain(cfg))
