"""``troupe``: compose a training run with Hydra, build it once, run it."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .algorithms.base import CreditError
from .assembly import assemble
from .configuration import ConfigError, check_choices
from .loop import TrainLoop
from .models.laptop import BaseModelError
from .rollout.voice import PromptError


def build(cfg: DictConfig) -> TrainLoop:
    """Everything that ``cfg`` names, put together.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong; the run directory is claimed last.
    """
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[assignment]
    return assemble(config, OmegaConf.to_yaml(cfg, resolve=True), OmegaConf.to_yaml(cfg, resolve=False))


def run(cfg: DictConfig) -> dict[str, Any]:
    """Build and train; returns the summary."""
    return train(build(cfg))


def train(loop: TrainLoop) -> dict[str, Any]:
    """Train and show it; returns the summary."""
    loop.display.say(f"{loop.display.title}, seed {loop.seed}: {loop.directory.path}")
    with loop.display:
        return asyncio.run(loop.run())


@hydra.main(version_base="1.3", config_path="pkg://troupe.configs", config_name="train")
def _hydra_main(cfg: DictConfig) -> None:
    try:
        _name_apart(cfg)
        loop = build(cfg)
    except (ValueError, BaseModelError, OmegaConfBaseException) as error:
        _fail(error)
    try:
        train(loop)
    except KeyboardInterrupt:
        sys.exit(f"interrupted; what was reached is in {loop.directory.path}")
    except (PromptError, CreditError, FloatingPointError) as error:
        _fail(error, f"; what was reached is in {loop.directory.path}")


def _name_apart(cfg: DictConfig) -> None:
    """Jobs of one --multirun may start in the same second with the same name and seed: the job's number tells them
    apart, unless the command line says where they go.
    """
    hydra_cfg = HydraConfig.get()
    given = any(override.lstrip("+").startswith("run_dir=") for override in hydra_cfg.overrides.task)
    if hydra_cfg.mode == RunMode.MULTIRUN and not given:
        cfg.run_dir = f"{cfg.run_dir}-{hydra_cfg.job.num}"


def _fail(error: Exception, more: str = "") -> NoReturn:
    """End with the message alone, or with the whole traceback where HYDRA_FULL_ERROR=1 asks for it."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        raise error
    sys.exit(f"error: {error}{more}")


def main() -> None:
    """The console script."""
    try:
        check_choices(sys.argv[1:])
    except ConfigError as error:
        _fail(error)
    _hydra_main()


if __name__ == "__main__":
    main()
