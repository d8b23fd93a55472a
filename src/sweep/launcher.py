"""Hydra's launchers, which start the jobs of a sweep.

Hydra's ``--multirun`` is not used for three reasons: it knows products of overrides only, and settings are not one (a
single agent has another algorithm than a team); it would start a job, on a cluster wait in a queue, for every run that
is already finished; and it ends with the first failed run's error, without a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hydra import initialize_config_module
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig

LAUNCHERS = {"basic": "basic", "joblib": "joblib", "submitit": "submitit_slurm", "submitit_local": "submitit_local"}
"""``launcher=`` to Hydra's name: one run after the other, several at once, on Slurm, and submitit without Slurm."""


def launcher_of(name: str, folder: Path, task: Callable[[DictConfig], object], overrides: Sequence[str]) -> Launcher:
    """The launcher ``name``, which calls ``task`` with the configuration of each job of the sweep in ``folder``.

    ``overrides`` are those of Hydra itself.  Raises ``HydraException`` where one of them is wrong.
    """
    own = [f"hydra/launcher={LAUNCHERS[name]}", f"hydra.sweep.dir='{folder}'", "hydra.sweep.subdir=."]
    with initialize_config_module("troupe.configs", version_base="1.3", job_name="sweep"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None  # initialize_config_module has set it
        master = hydra.compose_config("train", [*own, *overrides], RunMode.MULTIRUN)
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks())
        return Plugins.instance().instantiate_launcher(context, task, master)
