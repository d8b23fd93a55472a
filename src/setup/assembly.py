"""From a configuration to the objects that train: the one place where they are put together."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from ..diagnostics.diagnostics import Diagnostics
from ..envs.base import TeamEnv
from ..evaluation.self_play import SelfPlay
from ..loop import TrainLoop
from ..models.learning.ranks import Ranks
from ..models.pools.checkpoint import START, restore
from ..models.pools.fabrics import launch, trainable_fabric
from ..rollout.samplers.sampler import Closing, Sampler
from ..rollout.samplers.spread import SpreadSampler
from ..runs.bounded import parse_yaml
from ..runs.budget import TrainSettings
from ..runs.callbacks import Callbacks
from ..runs.directory import ReadOnlyRunDirectory, RunDirectory
from ..runs.display import Display
from ..runs.faults import Observers
from ..runs.files import CHECKPOINTS, CONFIG
from ..runs.loggers import Loggers
from ..runs.output import RunOutput
from ..runs.progress import Progress
from .checks import check, check_state, checkpoints_of, set_threads
from .composition import user_folders
from .instantiation import build_callbacks, build_world, call, instantiated
from .parts import parts_of, plain, warn
from .resume import continued, locate
from .sections import AlgorithmSection, RunConfig
from .team import build_critics, build_team, close_now


def build(cfg: DictConfig) -> TrainLoop:
    """Everything that ``cfg`` names, put together.

    With ``resume``, as the run in that directory was, and at the checkpoint that it left.  Raises ``ValueError`` (or a
    subclass) naming the key that is wrong, ``CheckpointError`` the file; the run directory is claimed last.
    """
    if cfg.resume is None:
        return assemble(plain(cfg), OmegaConf.to_yaml(cfg, resolve=True), OmegaConf.to_yaml(cfg, resolve=False))
    run, checkpoint = locate(cfg.resume)
    cfg = continued(cfg, run)
    return assemble(plain(cfg), OmegaConf.to_yaml(cfg), None, checkpoint)


def assemble(config: dict[str, Any], resolved: str, unresolved: str | None, checkpoint: str | None = None) -> TrainLoop:
    """Everything that ``config`` names; ``resolved`` and ``unresolved`` are its yaml without and with interpolation.

    With ``checkpoint``, one of those in the run directory, the run there is continued, and ``unresolved`` is None.
    Raises ``ValueError`` (or a subclass) naming the key that is wrong, ``CheckpointError`` naming the file; the run
    directory is claimed, or changed, last (and one that is to be continued locked first); its ``release`` unlocks it.
    """
    parts = parts_of(config, unresolved)
    run, checkpoints = parts.config, checkpoints_of(parts)
    ranks = launch(call("strategy", trainable_fabric, parts.strategy))
    path = Path(ranks.from_first(run.run_dir))
    checkpoints.path = path / CHECKPOINTS
    with ExitStack() as refused:
        state = None
        if checkpoint:  # its state may be read once nobody else can change it
            directory = ranks.agreed(lambda: _directory(path, ranks, None))
            refused.callback(directory.release)
            state = ranks.agreed(lambda: checkpoints.state(checkpoint))
            ranks.agreed(lambda: check_state(state, parts.settings, checkpoints))
        checks = ranks.agreed(lambda: check(parts, new=checkpoint is None))
        warn(parts)
        set_threads(run.threads)
        torch.autograd.set_detect_anomaly(run.detect_anomaly)
        L.seed_everything(run.seed, verbose=False)
        common = parts.strategy, run.seed, ranks
        specs = {name: replace(spec, prompts=checks.prompts.get(name, ())) for name, spec in parts.policies.items()}
        team = ranks.agreed(lambda: build_team(specs, parts.router.team, *common, run.execution))
        refused.callback(close_now, team)
        team.critics = ranks.agreed(lambda: build_critics(parts.critics, parts.credit, *common, run.execution))
        sampler = parts.sampler
        if run.execution.worlds:  # episodes are played by actors
            sampler = SpreadSampler(sampler, partial(_rollout, run.env, run.algorithm), run.execution)
        if isinstance(sampler, Closing):
            refused.callback(close_now, sampler)
        observers = Observers(run.faults.logger)
        loggers = ranks.agreed(lambda: _loggers(run, observers))
        if not ranks.first:
            loggers = Loggers({})
        if not checkpoint:
            directory = ranks.agreed(lambda: _directory(path, ranks, resolved))
            refused.callback(directory.release)
        console = None if ranks.first else Console(quiet=True)
        title, folder = (run.name, parts.settings.iterations), path if ranks.first else None
        display = Display(*title, console, folder=folder, verbose=run.verbose, observers=observers)
        callbacks = Callbacks(ranks.agreed(lambda: build_callbacks(run.callbacks)), ranks)
        output = RunOutput(directory, loggers, display, callbacks)
        loop = TrainLoop(
            source=checks.source,
            team=team,
            sampler=sampler,
            credit=parts.credit,
            router=parts.router,
            settings=TrainSettings(
                loop=parts.settings,
                seed=run.seed,
                faults=run.faults,
                rebuilds=run.execution.restarts if run.execution.on_ray else 0,
            ),
            checkpoints=checkpoints,
            output=output,
            self_play=SelfPlay(team, parts.past, checkpoints, parts.world, run.seed),
            diagnostics=Diagnostics(run.diagnostics, team, output, run.faults, beside=not parts.settings.lockstep),
        )
        if state:
            ranks.agreed(lambda: _restore(loop, state))
            ranks.agreed(lambda: _rewind(loop, state, resolved))
        ranks.agreed(lambda: call("logger", loggers.config, path, config))
        refused.pop_all()
    return loop


def _rollout(env: Mapping[str, Any], algorithm: AlgorithmSection) -> tuple[TeamEnv, Sampler]:
    """In each actor that plays episodes."""
    return build_world("env", env), algorithm.build_sampler()


def reassemble(path: Path) -> TrainLoop:
    """The run in ``path``, whose configuration this process has checked before, at its last checkpoint; anew, where
    there is none.
    """
    text, there = (path / CONFIG).read_text(), (path / CHECKPOINTS / "last").exists()
    return assemble(parse_yaml(text), text, None, "last" if there else START)


def _directory(path: Path, ranks: Ranks, new: str | None) -> RunDirectory:
    """The run directory, locked: claimed with the configuration ``new``, or one that was claimed before (None)."""
    if not ranks.first:
        return ReadOnlyRunDirectory(path)
    folders = user_folders()
    return RunDirectory.reopen(path, folders) if new is None else RunDirectory(path, new, folders)


def _loggers(run: RunConfig, observers: Observers) -> Loggers:
    loggers = {name: instantiated(f"logger.{name}", node) for name, node in run.logger.items()}
    return Loggers(loggers, observers)


def _restore(loop: TrainLoop, state: dict[str, Any]) -> None:
    """Bring ``loop`` to where ``state`` was written; changes no file."""
    loop.progress = progress = Progress.of(state)
    if "iteration" not in state:  # the run begins anew
        return
    restore(loop.checkpoints.at(progress.iteration), loop.team.policies, loop.team.critics.by_name)
    loop.credit.load_state_dict(state["credit"])
    loop.tell.load_state_dict(state.get("callbacks", {}))
    if "self_play" in state:
        loop.self_play.load_state_dict(state["self_play"])
    loop.team.load_engine_states(state.get("engines", {}))  # checkpoints of older versions have none
    if loop.ahead is not None:
        loop.ahead.load_state_dict(state["ahead"])
    loop.display.goes_on(progress.iteration)


def _rewind(loop: TrainLoop, state: dict[str, Any], resolved: str) -> None:
    """Bring the files of ``loop``'s run to where ``state`` was written."""
    if not loop.ranks.first:
        return
    progress = loop.progress
    loop.directory.rewind(progress.iteration - bool(progress.row), resolved, progress.summary)
    loop.checkpoints.point(state)
    loop.checkpoints.forget_after(progress.iteration)
