"""From a composed configuration to the loop that trains."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..loop import TrainLoop
from .assembly import Parts, assemble, check, check_resumed, parts_of
from .resume import continued, locate


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


def checked(cfg: DictConfig) -> tuple[dict[str, Any], Parts, list[str]]:
    """What :func:`build` would read of ``cfg`` and put together before any model is loaded, and what this machine lacks
    (see :func:`.assembly.check`).  Raises as :func:`build` does; nothing is written.
    """
    if cfg.resume is None:
        config = plain(cfg)
        parts = parts_of(config, OmegaConf.to_yaml(cfg, resolve=False))
        return config, parts, check(config, parts, new=True, starts=False)
    run_dir, checkpoint = locate(cfg.resume)
    config = plain(continued(cfg, run_dir))
    parts = parts_of(config, None)
    check_resumed(config, parts, checkpoint)
    return config, parts, check(config, parts, new=False, starts=False)


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration.  Raises omegaconf's error for a value that is missing."""
    return OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[return-value]
