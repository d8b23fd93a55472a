"""``resume=RUN_DIR``: the configuration of a run that is continued, with what the command line may change in it."""

from __future__ import annotations

import re
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ..errors import ConfigError
from ..runs.files import CHECKPOINTS
from ..runs.run import Run
from .configuration import FREE, binding, call, check_equal, choices

REMEDY = f"resume=RUN_DIR alone continues it as it was; only {', '.join(FREE)} may differ"


def locate(resume: str) -> tuple[Run, str]:
    """The run and the name of the checkpoint that ``resume`` means: a run's last checkpoint, or one that is named.

    Raises :class:`..errors.ConfigError` where there is no run, or one that another version wrote.
    """
    path = Path(resume)
    folder, name = (path.parents[1], path.name) if path.parent.name == CHECKPOINTS else (path, "last")
    run = call("resume", Run, folder)
    call("resume", run.check_format)
    return run, name


def continued(cfg: DictConfig, run: Run) -> DictConfig:
    """The configuration of ``run``, and from ``cfg`` what was given on the command line and may differ.

    A whole command (with ``experiment=`` or another group) is compared as a whole.  Raises
    :class:`..errors.ConfigError` naming the keys that may not differ and do.
    """
    saved = OmegaConf.create(run.config)
    changed = saved.copy()
    keys = [_key(override) for override in HydraConfig.get().overrides.task]
    for key in keys:
        if not choices(key.partition("@")[0]) and key != "resume":
            OmegaConf.update(changed, key, OmegaConf.select(cfg, key), force_add=True)
    if "run_dir" in keys and Path(cfg.run_dir).resolve() != run.path.resolve():
        raise ConfigError(f"resume={run.path} goes on there, not in run_dir={cfg.run_dir}; leave run_dir out")
    whole = any(choices(key.partition("@")[0]) for key in keys)
    check_equal(binding(_plain(saved)), binding(_plain(cfg if whole else changed)), REMEDY)
    OmegaConf.update(changed, "run_dir", str(run.path))
    OmegaConf.update(changed, "resume", None)
    return changed


def _key(override: str) -> str:
    return re.sub(r"^[+~]*", "", override).partition("=")[0]


def _plain(cfg: DictConfig) -> dict:
    return OmegaConf.to_container(cfg, resolve=True)  # type: ignore[return-value]
