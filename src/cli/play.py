"""A team plays in the terminal; a person may take any seat.  The keys are those of ``configs/play.yaml``."""

from __future__ import annotations

import sys

from omegaconf import DictConfig, OmegaConf

from ..api.playing import play_team
from ..setup.command_line import fail
from .eval import REFUSED


def run_command(cfg: DictConfig) -> None:
    """``troupe play``, with the configuration that Hydra has composed."""
    try:
        play_team(OmegaConf.to_container(cfg, resolve=True))  # type: ignore[arg-type]
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except REFUSED as error:
        fail(error)
