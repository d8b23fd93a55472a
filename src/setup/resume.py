"""``resume=RUN_DIR``: the configuration of a run that is continued, with what the command line may change in it."""

from __future__ import annotations

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ..errors import ConfigError
from .command_line import parsed
from .configuration import FREE, binding, check_equal

REMEDY = f"resume=RUN_DIR alone continues it as it was; only {', '.join(FREE)} may differ"


def locate(resume: str) -> tuple[Path, str]:
    """The run directory and the name of the checkpoint that ``resume`` means: a run's last one, or one that is named.

    Raises :class:`..errors.ConfigError` for what is no run directory.
    """
    given = Path(resume)
    run_dir, name = (given.parents[1], given.name) if given.parent.name == "checkpoints" else (given, "last")
    if not (run_dir / "config.yaml").is_file():
        raise ConfigError(f"resume={resume} is no run directory: {run_dir / 'config.yaml'} is missing")
    return run_dir, name


def continued(cfg: DictConfig, run_dir: Path) -> DictConfig:
    """The configuration kept in ``run_dir``, and from ``cfg`` what was given on the command line and may differ.

    A whole command (with ``experiment=`` or another group) is compared as a whole.  Raises
    :class:`..errors.ConfigError` naming the keys that may not differ and do.
    """
    saved = OmegaConf.load(run_dir / "config.yaml")
    if not isinstance(saved, DictConfig):
        raise ConfigError(f"{run_dir / 'config.yaml'} holds no keys")
    asked = saved.copy()
    groups = HydraConfig.get().runtime.choices
    given = [override.get_key_element().lstrip("+~") for override in parsed(HydraConfig.get().overrides.task)]
    for key in given:
        if key not in groups and key != "resume":
            OmegaConf.update(asked, key, OmegaConf.select(cfg, key), force_add=True)
    if "run_dir" in given and Path(cfg.run_dir).resolve() != run_dir.resolve():
        raise ConfigError(f"resume={run_dir} goes on there, not in run_dir={cfg.run_dir}; leave run_dir out")
    whole = any(key in groups for key in given)
    check_equal(binding(_plain(saved)), binding(_plain(cfg if whole else asked)), REMEDY)
    OmegaConf.update(asked, "run_dir", str(run_dir))
    OmegaConf.update(asked, "resume", None)
    return asked


def _plain(cfg: DictConfig) -> dict:
    return OmegaConf.to_container(cfg, resolve=True)  # type: ignore[return-value]
