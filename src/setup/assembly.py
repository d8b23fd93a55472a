"""From a resolved configuration to the objects that train: the one place where they are put together."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lightning as L
import torch
from rich.console import Console

from ..loop import TrainLoop
from ..models.checkpoint import restore
from ..models.checkpoint_folder import START
from ..models.ranks import Ranks
from ..models.strategies import launch, trainable_fabric
from ..rollout.samplers.base import Closing
from ..runs.directory import ReadOnlyRunDirectory, RunDirectory
from ..runs.display import Display
from ..runs.files import CHECKPOINTS, CONFIG, parse_yaml
from ..runs.loggers import Loggers
from ..runs.progress import Progress
from .asynchrony import bounds
from .closing import close_now
from .critics import build_critics
from .execution import spread
from .instantiation import call, instantiated
from .parts import parts_of, warn
from .preflight import check, check_state, checkpoints_of, set_threads
from .search_path import user_folders
from .sections import RunConfig
from .team import build_team


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
        ranks.agreed(lambda: check(parts, new=checkpoint is None))
        warn(parts)
        if run.threads is not None:
            set_threads(run.threads)
        torch.autograd.set_detect_anomaly(run.detect_anomaly)
        L.seed_everything(run.seed, verbose=False)
        common = parts.strategy, run.seed, ranks
        team = ranks.agreed(lambda: build_team(parts.policies, parts.router.team, *common, run.execution))
        refused.callback(close_now, team)
        team.critics = ranks.agreed(lambda: build_critics(parts.critics, parts.credit, *common, run.execution))
        sampler = spread(parts.sampler, run) if run.execution.worlds else parts.sampler
        if isinstance(sampler, Closing):
            refused.callback(close_now, sampler)
        loggers = ranks.agreed(lambda: _loggers(run))
        if not checkpoint:
            directory = ranks.agreed(lambda: _directory(path, ranks, resolved))
            refused.callback(directory.release)
        loop = TrainLoop(
            world=parts.world,
            team=team,
            sampler=sampler,
            credit=parts.credit,
            router=parts.router,
            settings=parts.settings,
            directory=directory,
            checkpoints=checkpoints,
            loggers=loggers,
            display=Display(
                run.name,
                parts.settings.iterations,
                None if ranks.first else Console(quiet=True),
                verbose=run.verbose,
            ),
            seed=run.seed,
            ranks=ranks,
            faults=run.faults,
            diagnostics=run.diagnostics,
            rebuilds=run.execution.restarts if run.execution.on_ray else 0,
            staleness=bounds(parts.settings, parts.policies),
        )
        if state:
            ranks.agreed(lambda: _restore(loop, state))
            ranks.agreed(lambda: _rewind(loop, state, resolved))
        ranks.agreed(lambda: call("logger", loggers.config, path, config))
        refused.pop_all()
    return loop


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


def _loggers(run: RunConfig) -> Loggers:
    loggers = {name: instantiated(f"logger.{name}", node) for name, node in run.logger.items()}
    return Loggers(loggers, run.faults.logger)


def _restore(loop: TrainLoop, state: dict[str, Any]) -> None:
    """Bring ``loop`` to where ``state`` was written; changes no file."""
    loop.progress = progress = Progress.of(state)
    if "iteration" not in state:  # the run begins anew
        return
    restore(loop.checkpoints.at(progress.iteration), loop.team.policies, loop.team.critics.by_name)
    loop.credit.load_state_dict(state["credit"])
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
