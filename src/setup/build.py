"""From a composed configuration to the loop that trains."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..loop import TrainLoop
from .assembly import assemble
from .parts import Parts, parts_of
from .preflight import check, check_resumed
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


def checked(cfg: DictConfig) -> tuple[Parts, list[str]]:
    """What :func:`build` would put together of ``cfg`` before any model is loaded, and what this machine lacks (see
    :func:`.preflight.check`).  Raises as :func:`build` does; nothing is written.
    """
    if cfg.resume is None:
        parts = parts_of(plain(cfg), OmegaConf.to_yaml(cfg, resolve=False))
        return parts, check(parts, new=True, starts=False)
    run, checkpoint = locate(cfg.resume)
    parts = parts_of(plain(continued(cfg, run)), None)
    check_resumed(parts, checkpoint)
    return parts, check(parts, new=False, starts=False)


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration.  Raises omegaconf's error for a value that is missing."""
    return OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[return-value]
