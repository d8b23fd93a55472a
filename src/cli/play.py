"""A team plays in the terminal; a person may take any seat.  The keys are those of ``configs/play.yaml``."""

from __future__ import annotations

from omegaconf import DictConfig

from ..api.playing import play_team
from ..setup.parts import plain


def run_command(cfg: DictConfig) -> None:
    """``troupe play``, with the configuration that Hydra has composed."""
    play_team(plain(cfg))
