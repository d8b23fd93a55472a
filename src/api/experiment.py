"""A training run from Python: composed as by the command ``troupe train``, planned, trained."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from ..errors import ConfigError
from ..setup.assembly import build
from ..setup.checks import checked
from ..setup.command_line import check_one_run, check_overrides, parsed
from ..setup.composition import configurations
from ..setup.dry_run import Plan, plan
from ..setup.parts import plain, warn
from .run import Run
from .training import train

log = logging.getLogger(__name__)


class Experiment:
    """A training run that has not begun::

        experiment = Experiment.compose("sokoban_specialized", overrides=["loop.iterations=10", "seed=1"])
        experiment.config["loop"]["iterations"]     # 10
        experiment.plan().completions               # the most that an iteration generates
        run = experiment.train()
        run.metrics["rollout/turns"]

    ``overrides`` are the words of ``troupe train``; see docs/configuration.md.
    """

    def __init__(self, composed: DictConfig) -> None:
        """``composed`` as Hydra returns it, with its section ``hydra``; :meth:`compose` and :meth:`resume` make it."""
        if not isinstance(composed, DictConfig):
            raise ConfigError(f"Experiment.compose({str(composed)!r}) is the way to make one")
        self._composed = composed

    @classmethod
    def compose(cls, name: str, overrides: Sequence[str] = (), *, config_dir: str | Path | None = None) -> Self:
        """The experiment ``name`` of ``configs/experiment``, or of ``experiment/`` in your own folder ``config_dir``.

        Raises :class:`~troupe.errors.ConfigError` naming the override that is wrong.
        """
        return cls._of([f"experiment={name}"], overrides, config_dir)

    @classmethod
    def resume(cls, run: str | Path, overrides: Sequence[str] = ()) -> Self:
        """The rest of the run in the directory ``run``, from its last checkpoint, or from one that is named
        (``RUN/checkpoints/iteration_00010``).  Raises as :meth:`compose` does.
        """
        return cls._of([f"resume={run}"], overrides, None)

    @classmethod
    def _of(cls, words: Sequence[str], more: Sequence[str], config_dir: str | Path | None) -> Self:
        if not isinstance(more, list | tuple):  # the letters of a text, and the keys of a mapping, are no overrides
            raise ConfigError(f"overrides must be a list, such as ['seed=1', 'loop.iterations=20'], got {more!r}")
        overrides = [*words, *more]
        if isinstance(config_dir, Path):
            config_dir = str(config_dir)
        with configurations(config_dir):
            check_one_run(parsed(overrides))
            check_overrides("train", overrides)
            return cls(compose("train", overrides=overrides, return_hydra_config=True))

    @property
    def overrides(self) -> list[str]:
        """The words that it was composed of."""
        return list(self._composed.hydra.overrides.task)

    def __repr__(self) -> str:
        return f"Experiment({' '.join(self.overrides)})"

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration.  Unless ``run_dir`` was given, it has the time of this call."""
        with self._cfg() as cfg:
            return plain(cfg)

    def plan(self) -> Plan:
        """Check everything that needs no weights, and return what the run would do; nothing is written.

        Logs a warning for what this machine lacks.  Raises ``ValueError`` (or a subclass) naming the key that is wrong.
        """
        with self._cfg() as cfg:
            parts, lacks = checked(cfg)
        warn(parts)
        for lack in lacks:
            log.warning("not on this machine: %s", lack)
        return plan(parts)

    def train(self) -> Run:
        """Train to the end, as ``troupe train`` does, and return the run.

        It works in a notebook, too.  An interrupt raises ``KeyboardInterrupt`` and leaves a run that :meth:`resume`
        continues.  Raises ``ValueError`` (or a subclass) naming the key that is wrong before anything is written.
        """
        if self._composed.dry_run:
            raise ConfigError("dry_run=true: plan() is the dry run, train() trains")
        with self._cfg() as cfg:
            loop = build(cfg)
        train(loop)
        return Run(loop.directory.path)

    @contextmanager
    def _cfg(self) -> Iterator[DictConfig]:
        """The configuration without ``hydra``, which its interpolations (``${now:}``) refer to meanwhile."""
        hydra = HydraConfig.instance()
        before = hydra.cfg
        hydra.set_config(self._composed)
        cfg = copy.deepcopy(self._composed)
        OmegaConf.clear_cache(cfg)  # so that the time in run_dir is that of this call
        with open_dict(cfg):
            del cfg["hydra"]
        try:
            yield cfg
        finally:
            hydra.cfg = before
