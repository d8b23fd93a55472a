"""From a resolved configuration to the objects that train: the one place where they are put together."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from rich.console import Console

from ..algorithms.credit.base import CreditRule
from ..envs.base import TeamEnv
from ..errors import ConfigError
from ..loop import LoopSettings, TrainLoop
from ..models.checkpoint import restore
from ..models.checkpoint_folder import CheckpointFolder
from ..models.ranks import Ranks
from ..models.strategies import StrategySettings, launch, trainable_fabric
from ..rollout.samplers.base import Sampler
from ..routing import Router
from ..runs.directory import ReadOnlyRunDirectory, RunDirectory, check_free
from ..runs.display import Display
from ..runs.files import CHECKPOINTS
from ..runs.loggers import Loggers
from ..runs.progress import Progress
from ..runs.run import Run
from .checks import Machine, check_policies, check_tasks, clients_of
from .configuration import SPEAKING, binding, call, check_equal, check_keys, instantiated
from .policies import PolicySpec, cautions, read_policies
from .team import build_team

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """What a run is made of, before any model is loaded."""

    settings: LoopSettings
    world: TeamEnv
    router: Router
    sampler: Sampler
    credit: CreditRule
    policies: dict[str, PolicySpec]
    strategy: StrategySettings


def parts_of(config: dict[str, Any], unresolved: str | None) -> Parts:
    """The parts that ``config`` names; ``unresolved`` is its yaml with interpolations.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong.
    """
    check_keys(config, unresolved)
    settings = call("loop", LoopSettings, **{k: v for k, v in config["loop"].items() if k != "checkpoint"})
    world = instantiated("env", config["env"])
    frozen = [name for name, policy in config["policies"].items() if policy.get("tuning") in SPEAKING]
    router = Router(config["team"], world.agents, tuple(config["policies"]), frozen)
    sampler, credit, objective = (
        instantiated(f"algorithm.{key}", config["algorithm"][key]) for key in ("sampler", "credit", "objective")
    )
    sampler.check(world)
    credit.check(sampler.k, sampler.topology)
    rows = config["engine"].get("max_batch_rows")
    if rows is not None and sampler.k > rows:
        raise ConfigError(f"algorithm.sampler.k={sampler.k} is more than engine.max_batch_rows={rows} decode together")
    policies = read_policies(config, objective)
    return Parts(settings, world, router, sampler, credit, policies, _strategy(config["strategy"]))


def assemble(config: dict[str, Any], resolved: str, unresolved: str | None, checkpoint: str | None = None) -> TrainLoop:
    """Everything that ``config`` names; ``resolved`` and ``unresolved`` are its yaml without and with interpolation.

    With ``checkpoint``, one of those in the run directory, the run there is continued, and ``unresolved`` is None.
    Raises ``ValueError`` (or a subclass) naming the key that is wrong, ``CheckpointError`` naming the file; the run
    directory is claimed, or changed, last (and one that is to be continued locked first); its ``release`` unlocks it.
    """
    parts = parts_of(config, unresolved)
    checkpoints = _checkpoints(config)
    ranks = launch(call("strategy", trainable_fabric, parts.strategy))
    path = Path(ranks.from_first(config["run_dir"]))
    checkpoints.path = path / CHECKPOINTS
    with ExitStack() as refused:
        state = None
        if checkpoint:  # its state may be read once nobody else can change it
            directory = ranks.agreed(lambda: _directory(path, ranks, None))
            refused.callback(directory.release)
            state = ranks.agreed(lambda: checkpoints.state(checkpoint))
            ranks.agreed(lambda: check_state(state, parts.settings, checkpoints))
        ranks.agreed(lambda: check(config, parts, new=checkpoint is None))
        warn(parts)
        if config["threads"] is not None:
            set_threads(config["threads"])
        L.seed_everything(config["seed"], verbose=False)
        given = parts.policies, parts.router.team, parts.strategy, config["engine"], config["seed"], ranks
        team = ranks.agreed(lambda: build_team(*given))
        loggers = ranks.agreed(lambda: _loggers(config))
        if not checkpoint:
            directory = ranks.agreed(lambda: _directory(path, ranks, resolved))
            refused.callback(directory.release)
        loop = TrainLoop(
            world=parts.world,
            team=team,
            sampler=parts.sampler,
            credit=parts.credit,
            router=parts.router,
            settings=parts.settings,
            directory=directory,
            checkpoints=checkpoints,
            loggers=loggers,
            display=Display(config["name"], parts.settings.iterations, None if ranks.first else Console(quiet=True)),
            seed=config["seed"],
            ranks=ranks,
        )
        if state:
            ranks.agreed(lambda: _restore(loop, state))
            ranks.agreed(lambda: _rewind(loop, state, resolved))
        ranks.agreed(lambda: call("logger", loggers.config, path, config))
        refused.pop_all()
    return loop


def check(config: dict[str, Any], parts: Parts, *, new: bool, starts: bool = True) -> list[str]:
    """Refuse what training refuses before any model is loaded; ``new``: the run does not go on from a checkpoint.

    Where the run does not start now (a dry run), perhaps never on this machine, nothing is fetched, and what this
    machine lacks is no reason to refuse: it is returned, a sentence each, with what could not be checked for that.
    Raises ``ValueError`` (or a subclass) naming the key; nothing is written and no weights are loaded.
    """
    machine = Machine(starts)
    _checkpoints(config)
    machine.ask(call, "strategy", trainable_fabric, parts.strategy)
    if new:
        check_free(Path(config["run_dir"]))
    check_threads(config["threads"])
    check_seed(config["seed"])
    bases = check_policies(parts.policies, config["engine"], machine)
    clients = clients_of(parts.router.team, parts.policies, bases)
    check_tasks(parts.world, parts.settings, clients, parts.sampler.resample, machine)
    for name, node in config["logger"].items():
        machine.ask(instantiated, f"logger.{name}", node)
    return machine.lacks


def check_resumed(config: dict[str, Any], parts: Parts, checkpoint: str) -> None:
    """Refuse what :func:`assemble` would of the ``checkpoint`` that a run goes on from; nothing is locked.

    Raises :class:`..errors.ConfigError`, :class:`..models.checkpoint.CheckpointError`,
    :class:`..runs.directory.RunDirectoryError`.
    """
    checkpoints = _checkpoints(config)
    check_state(checkpoints.state(checkpoint), parts.settings, checkpoints)


def check_state(state: dict[str, Any], settings: LoopSettings, checkpoints: CheckpointFolder) -> None:
    """Refuse to go on from ``state`` with another configuration, past its end, or without the rows before it."""
    directory, progress = ReadOnlyRunDirectory(checkpoints.path.parent), Progress.of(state)
    written = f"{directory.path / 'config.yaml'} was changed since {checkpoints.at(progress.iteration)}"
    check_equal(state["config"], dict(checkpoints.config), written)
    if settings.budget.exhausted(progress) and Run(directory.path).status == "finished":
        raise ConfigError(
            f"resume={directory.path}: the run has finished, after {progress.iteration} iterations; to go on, give a "
            "larger loop.iterations (it is the total), or loop.completions"
        )
    directory.check_rows(progress.iteration - bool(progress.row))


def warn(parts: Parts) -> None:
    """Say what is legal and hardly meant."""
    for caution in cautions(parts.policies, parts.settings.iterations):
        log.warning(caution)


def _directory(path: Path, ranks: Ranks, new: str | None) -> RunDirectory:
    """The run directory, locked: claimed with the configuration ``new``, or one that was claimed before (None)."""
    if not ranks.first:
        return ReadOnlyRunDirectory(path)
    return RunDirectory.reopen(path) if new is None else RunDirectory(path, new)


def _loggers(config: dict[str, Any]) -> Loggers:
    return Loggers({name: instantiated(f"logger.{name}", node) for name, node in config["logger"].items()})


def _checkpoints(config: dict[str, Any]) -> CheckpointFolder:
    path = Path(config["run_dir"]) / CHECKPOINTS
    return call("loop.checkpoint", CheckpointFolder, path, binding(config), **config["loop"]["checkpoint"])


def _restore(loop: TrainLoop, state: dict[str, Any]) -> None:
    """Bring ``loop`` to where ``state`` was written; changes no file."""
    progress = Progress.of(state)
    loop.progress = progress
    restore(loop.checkpoints.at(progress.iteration), loop.team.policies)
    loop.credit.load_state_dict(state["credit"])
    loop.display.goes_on(progress.iteration)


def _rewind(loop: TrainLoop, state: dict[str, Any], resolved: str) -> None:
    """Bring the files of ``loop``'s run to where ``state`` was written."""
    if not loop.ranks.first:
        return
    progress = loop.progress
    loop.directory.rewind(progress.iteration - bool(progress.row), resolved, progress.summary)
    loop.checkpoints.point(state)
    loop.checkpoints.forget_after(progress.iteration)


def _strategy(node: dict[str, Any]) -> StrategySettings:
    named = node.get("strategy")
    sharded = {"strategy": instantiated("strategy.strategy", named)} if isinstance(named, dict) else {}
    return call("strategy", StrategySettings, **node | sharded)


def set_threads(count: int) -> None:
    """How many threads torch uses.  Raises ``ValueError``."""
    check_threads(count)
    torch.set_num_threads(count)


def check_threads(count: int | None) -> None:
    if count is not None and (not isinstance(count, int) or count < 1):
        raise ConfigError(f"threads must be a whole number of at least 1, or null, got {count!r}")


def check_seed(seed: int) -> None:
    """numpy's range; a run's own seeds are derived from it."""
    if not isinstance(seed, int) or not 0 <= seed < 1 << 32:
        raise ConfigError(f"seed must be a whole number from 0 to 2^32 - 1, got {seed!r}")
