"""Train a team: compose the run with Hydra, build it once, run it.  ``docs/configuration.md`` has every key."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console

from ..errors import ConfigError, visible
from ..models.learning.ranks import OtherRankError
from ..setup.checks import checked
from ..setup.command_line import end
from ..setup.dry_run import plan, tables
from ..setup.parts import warn
from .main import loading
from .watch import watched

if TYPE_CHECKING:
    from ..loop import TrainLoop


def show_plan(cfg: DictConfig) -> None:
    """Check ``cfg`` and print what the run would do; nothing is written.  Raises as :func:`build` does."""
    parts, lacks = checked(cfg)
    warn(parts)
    console = Console()
    title = f"{visible(parts.config.name)}: a dry run; no weights are loaded and nothing is written"
    console.print(title, highlight=False, markup=False)
    for part in tables(plan(parts)):
        console.print(part, highlight=False, soft_wrap=isinstance(part, str))
    if lacks:
        console.print("not on this machine, where training would fetch it or be refused:", highlight=False)
    for lack in lacks:
        console.print(f"- {visible(lack)}", highlight=False, markup=False, soft_wrap=True)


def run(cfg: DictConfig) -> dict[str, Any]:
    """Build and train; returns the summary."""
    return train(build(cfg))


def build(cfg: DictConfig) -> TrainLoop:
    """:func:`..setup.assembly.build`, imported now: a dry run ends before."""
    with loading():
        from ..setup import assembly

    return assembly.build(cfg)


def train(loop: TrainLoop) -> dict[str, Any]:
    """:func:`..api.training.train`, imported now."""
    from ..api import training

    return training.train(loop)


def run_command(cfg: DictConfig) -> None:
    """``troupe train``, with the configuration that Hydra has composed."""
    try:
        if cfg.dry_run:
            return show_plan(cfg)
        _name_apart(cfg)
        loop = build(cfg)
    except OtherRankError:
        sys.exit(1)
    path, ranks = loop.directory.path, loop.ranks
    try:
        with watched(path) if cfg.live and ranks.first else nullcontext():
            train(loop)
    except OtherRankError:
        sys.exit(0 if ranks.over and not ranks.first else 1)  # Lightning kills the first where another ends with 1
    except KeyboardInterrupt:
        if not ranks.first:
            sys.exit(0)
        sys.exit(f"interrupted; the results so far are in {path}, and resume={path} goes on from there")
    except Exception as error:  # the user's code may raise any
        end(error, f"; the results so far are in {path}", ConfigError)


def _name_apart(cfg: DictConfig) -> None:
    """Jobs of one --multirun may start in the same second with the same name and seed: the job's number tells them
    apart, unless the command line says where they go.
    """
    hydra_cfg = HydraConfig.get()
    named = any(override.lstrip("+").startswith("run_dir=") for override in hydra_cfg.overrides.task)
    if hydra_cfg.mode == RunMode.MULTIRUN and not named:
        cfg.run_dir = f"{cfg.run_dir}-{hydra_cfg.job.num}"
