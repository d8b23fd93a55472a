"""The checks before any model is loaded, the same for training and for a dry run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ..cluster.actors import check_installed
from ..errors import ConfigError
from ..models.checkpoint_folder import CheckpointFolder
from ..models.strategies import trainable_fabric
from ..runs.budget import LoopSettings
from ..runs.directory import ReadOnlyRunDirectory, check_free
from ..runs.files import CHECKPOINTS
from ..runs.progress import Progress
from ..runs.run import Run
from .checks import Machine, check_demonstrators, check_policies, check_tasks, check_tools, clients_of
from .critics import check_critics
from .instantiation import call, instantiated
from .parts import Parts
from .resume import check_equal
from .sections import check_threads


def check(parts: Parts, *, new: bool, starts: bool = True) -> list[str]:
    """Refuse what training refuses before any model is loaded; ``new``: the run does not go on from a checkpoint.

    Where the run does not start now (a dry run), perhaps never on this machine, nothing is fetched, and what this
    machine lacks is no reason to refuse: it is returned, a sentence each, with what could not be checked for that.
    Raises ``ValueError`` (or a subclass) naming the key; nothing is written and no weights are loaded.
    """
    machine, run = Machine(starts), parts.config
    checkpoints_of(parts)
    if run.execution.on_ray:
        machine.ask(check_installed)
    machine.ask(call, "strategy", trainable_fabric, parts.strategy)
    for name, spec in parts.policies.items():
        if spec.place is not None:
            machine.ask(call, f"policies.{name}", trainable_fabric, spec.place)
    for critic in parts.critics.values():
        if critic.place is not None:
            machine.ask(call, "algorithm.critic", trainable_fabric, critic.place)
    if new:
        check_free(Path(run.run_dir))
    for name, node in run.logger.items():
        machine.ask(instantiated, f"logger.{name}", node)
    bases = check_policies(parts.policies, machine)
    check_critics(parts.critics, bases, machine)
    check_demonstrators(parts.world, parts.router.team, parts.policies)
    check_tools(parts.world, parts.router.team, parts.policies)
    clients = clients_of(parts.router.team, parts.policies, bases)
    check_tasks(parts.world, parts.settings, clients, parts.sampler.resample, machine)
    return machine.lacks


def check_resumed(parts: Parts, checkpoint: str) -> None:
    """Refuse what :func:`.assembly.assemble` would of the ``checkpoint`` that a run goes on from; nothing is locked.

    Raises :class:`..errors.ConfigError`, :class:`..models.checkpoint.CheckpointError`,
    :class:`..runs.directory.RunDirectoryError`.
    """
    checkpoints = checkpoints_of(parts)
    check_state(checkpoints.state(checkpoint), parts.settings, checkpoints)


def check_state(state: dict[str, Any], settings: LoopSettings, checkpoints: CheckpointFolder) -> None:
    """Refuse to go on from ``state`` with another configuration, past its end, or without the rows before it."""
    directory, progress = ReadOnlyRunDirectory(checkpoints.path.parent), Progress.of(state)
    written = f"{directory.path / 'config.yaml'} was changed since {checkpoints.at(progress.iteration)}"
    check_equal(state["config"], dict(checkpoints.config), written)
    if settings.budget.exhausted(progress.iteration, progress.completions) and Run(directory.path).status == "finished":
        raise ConfigError(
            f"resume={directory.path}: the run has finished, after {progress.iteration} iterations; to go on, give a "
            "larger loop.iterations (it is the total), or loop.completions"
        )
    directory.check_rows(progress.iteration - bool(progress.row))


def checkpoints_of(parts: Parts) -> CheckpointFolder:
    """The folder of checkpoints in the run directory.  Raises :class:`ConfigError`."""
    path = Path(parts.config.run_dir) / CHECKPOINTS
    settings = asdict(parts.config.loop.checkpoint)
    folder: CheckpointFolder = call("loop.checkpoint", CheckpointFolder, path, parts.binding, **settings)
    return folder


def set_threads(count: int) -> None:
    """How many threads torch uses.  Raises ``ValueError``."""
    check_threads(count)
    torch.set_num_threads(count)
