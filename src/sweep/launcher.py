"""Hydra's launchers, which start the jobs of a sweep, and their workers, which end with it.

Hydra's ``--multirun`` is not used for three reasons: it knows products of overrides only, and settings are not one (a
single agent has another algorithm than a team); it would start a job, on a cluster wait in a queue, for every run that
is already finished; and it ends with the first failed run's error, without a table.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread

from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.experimental.callback import Callback
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig

from ..setup.composition import configurations

LAUNCHERS = {"basic": "basic", "joblib": "joblib", "submitit": "submitit_slurm", "submitit_local": "submitit_local"}
"""``launcher=`` to Hydra's name: one run after the other, several at once, on Slurm, and submitit without Slurm."""


def launcher_of(
    name: str,
    folder: Path,
    task: Callable[[DictConfig], object],
    overrides: Sequence[str],
    config_dir: str | None = None,
) -> Launcher:
    """The launcher ``name``, which calls ``task`` with the configuration of each job of the sweep in ``folder``.

    ``overrides`` are those of Hydra itself; ``config_dir`` is the user's folder of configurations.  Raises
    ``HydraException`` where an override is wrong.
    """
    own = [f"hydra/launcher={LAUNCHERS[name]}", f"hydra.sweep.dir='{folder}'", "hydra.sweep.subdir=."]
    with configurations(config_dir, job_name="sweep"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("train", [*own, *overrides], RunMode.MULTIRUN)
        context = HydraContext(loader, callbacks=Callback())  # type: ignore[arg-type]  # none: each of its calls is empty
        return Plugins.instance().instantiate_launcher(context, task, master)


@contextmanager
def ending_with(sweep: int, *, local: bool) -> Iterator[None]:
    """A job of the process ``sweep``.  Where that is the parent of this one (``local``) and ends, this one is
    interrupted as by SIGTERM: a run writes its checkpoint, and then the process ends, which would wait for ever for
    another job.

    A launcher for other machines has its own way.
    """
    worker = local and sweep != os.getpid()
    if worker and os.getppid() != sweep:  # it ended while this one was starting
        os._exit(1)
    if worker:
        _watch(sweep)
    try:
        yield
    finally:
        if worker and os.getppid() != sweep:
            os._exit(1)


@cache
def _watch(sweep: int) -> None:
    Thread(target=_await_end, args=(sweep,), name="parent", daemon=True).start()


def _await_end(sweep: int) -> None:
    while os.getppid() == sweep:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
