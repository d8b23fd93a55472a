"""Fork a stored episode and play on from there.  The keys are those of ``configs/replay.yaml``."""

from __future__ import annotations

import sys

from omegaconf import DictConfig, OmegaConf

from ..api.replaying import replay_episode
from ..setup.command_line import fail
from .eval import REFUSED


def run_command(cfg: DictConfig) -> None:
    """``troupe replay``, with the configuration that Hydra has composed."""
    try:
        replay_episode(OmegaConf.to_container(cfg, resolve=True))  # type: ignore[arg-type]
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except REFUSED as error:
        fail(error)
