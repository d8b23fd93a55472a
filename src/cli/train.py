"""Train a team: compose the run with Hydra, build it once, run it.  ``docs/configuration.md`` has every key."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.fabric.utilities.rank_zero import rank_zero_only
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from ..algorithms.credit.checks import CreditError
from ..envs.base import WorldFailure
from ..errors import ConfigError
from ..loop import TrainLoop
from ..models.base_models import BaseModelError
from ..models.checkpoint import CheckpointError
from ..models.ranks import OtherRankError
from ..reports.report import write_report
from ..rollout.engines.base import EngineError
from ..rollout.policy_client import PromptError
from ..sandbox import SandboxUnavailable
from ..setup.assembly import warn
from ..setup.build import build, checked
from ..setup.configuration import check_choices, check_overridden, check_scale, fail
from ..setup.dry_run import plan, tables

REFUSED = (ValueError, BaseModelError, CheckpointError, EngineError, OmegaConfBaseException)
"""The errors that refuse a run before it begins."""

STOPPED = (
    *(PromptError, CreditError, FloatingPointError, CheckpointError, EngineError, OSError),
    *(WorldFailure, SandboxUnavailable),
)
"""The errors that stop a run that has begun."""


def show_plan(cfg: DictConfig) -> None:
    """Check ``cfg`` and print what the run would do; nothing is written.  Raises as :func:`build` does."""
    config, parts, lacks = checked(cfg)
    warn(parts)
    console = Console()
    console.print(f"{config['name']}: a dry run; no weights are loaded and nothing is written", highlight=False)
    for part in tables(plan(config, parts)):
        console.print(part, highlight=False, soft_wrap=isinstance(part, str))
    if lacks:
        console.print("not on this machine, where training would fetch it or be refused:", highlight=False)
    for lack in lacks:
        console.print(f"- {lack}", highlight=False, markup=False, soft_wrap=True)


def run(cfg: DictConfig) -> dict[str, Any]:
    """Build and train; returns the summary."""
    return train(build(cfg))


def train(loop: TrainLoop) -> dict[str, Any]:
    """Train and show it; returns the summary.

    However it ends, the run's report is written, and its directory is released.  SIGTERM interrupts as Ctrl-C
    does: ``KeyboardInterrupt``.
    """
    done = f", after {loop.progress.iteration} iterations" if loop.progress.iteration else ""
    loop.display.say(f"{loop.display.title}, seed {loop.seed}: {loop.directory.path}{done}")
    with loop.display:
        try:
            return asyncio.run(_run_until_signal(loop))
        except asyncio.CancelledError as error:
            raise KeyboardInterrupt from error
        finally:
            try:
                rank_zero_only(write_report)(loop.directory.path)
            finally:
                loop.directory.release()


async def _run_until_signal(loop: TrainLoop) -> dict[str, Any]:
    """Run ``loop``; a signal cancels it.  Several processes stop where they next meet, so that none waits for another
    that has ended.
    """
    task, events = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None  # a coroutine runs in one
    if loop.ranks.world == 1:
        events.add_signal_handler(signal.SIGTERM, task.cancel)
    else:
        for number in (signal.SIGINT, signal.SIGTERM):
            events.add_signal_handler(number, setattr, loop.ranks, "stop_requested", True)
    return await loop.run()


@hydra.main(version_base="1.3", config_path="pkg://troupe.configs", config_name="train")
def _hydra_main(cfg: DictConfig) -> None:
    try:
        if cfg.dry_run:
            return show_plan(cfg)
        _name_apart(cfg)
        loop = build(cfg)
    except OtherRankError:
        sys.exit(1)
    except REFUSED as error:
        fail(error)
    path, ranks = loop.directory.path, loop.ranks
    try:
        train(loop)
    except OtherRankError:
        sys.exit(0 if ranks.over and not ranks.first else 1)  # Lightning kills the first where another ends with 1
    except KeyboardInterrupt:
        if not ranks.first:
            sys.exit(0)
        sys.exit(f"interrupted; what was reached is in {path}, and resume={path} goes on from there")
    except STOPPED as error:
        fail(error, f"; what was reached is in {path}")


def _name_apart(cfg: DictConfig) -> None:
    """Jobs of one --multirun may start in the same second with the same name and seed: the job's number tells them
    apart, unless the command line says where they go.
    """
    hydra_cfg = HydraConfig.get()
    named = any(override.lstrip("+").startswith("run_dir=") for override in hydra_cfg.overrides.task)
    if hydra_cfg.mode == RunMode.MULTIRUN and not named:
        cfg.run_dir = f"{cfg.run_dir}-{hydra_cfg.job.num}"


def main(arguments: Sequence[str]) -> None:
    """``troupe train key=value ...``."""
    try:
        check_choices(arguments)
        check_scale(arguments)
        check_overridden("train", arguments)
    except ConfigError as error:
        fail(error)
    # Hydra reads them there.  So does Lightning, which starts the other processes of strategy=ddp with them: as
    # `troupe key=value ...`, which is this command.
    sys.argv[1:] = arguments
    _hydra_main()
