"""``resume=RUN_DIR``: the configuration of a run that is continued, with what the command line may change in it.

State and files are brought back by :mod:`.assembly`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ..errors import ConfigError
from ..runs.files import CHECKPOINTS
from ..runs.fingerprint import CACHE, FETCHING, flat, matches
from ..runs.run import RunReader
from .command_line import parsed
from .instantiation import call
from .trust import Trust, check_stored

FREE = (
    *"loop.iterations loop.completions loop.checkpoint logger run_dir resume dry_run allow_unsafe_execution".split(),
    *"callbacks trust verbose live detect_anomaly faults diagnostics execution".split(),
    *FETCHING,
    *CACHE,
    "scale.max_cache_gib",
    *"engine.max_batch_rows engine.iterations".split(),
    *"policies.*.engine.max_batch_rows policies.*.engine.iterations".split(),
)
"""The keys that a continued run may change, with the keys below them; ``*`` stands for one name."""

ADDRESS = "execution.address"
REMEDY = f"resume=RUN_DIR alone continues it as it was; only {', '.join(FREE)} may differ"


def binding(config: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted keys that a continued run must have in common with the run before."""
    return {key: value for key, value in flat(config) if not matches(key, FREE)}


def check_equal(before: Mapping[str, Any], after: Mapping[str, Any], remedy: str) -> None:
    """Raises :class:`ConfigError` naming the keys whose values differ, if any, and the ``remedy``."""
    nothing = object()
    differing = [
        f"{key} ({before.get(key, 'nothing')!r} in the run, {after.get(key, 'nothing')!r} here)"
        for key in sorted(before.keys() | after.keys())
        if before.get(key, nothing) != after.get(key, nothing)
    ]
    if differing:
        raise ConfigError(f"a continued run cannot change {'; '.join(differing)}. {remedy}")


def locate(resume: str) -> tuple[RunReader, str]:
    """The run and the name of the checkpoint that ``resume`` means: a run's last checkpoint, or one that is named.

    Raises :class:`..errors.ConfigError` where there is no run, or one that another version wrote.
    """
    path = Path(resume)
    folder, name = (path.parents[1], path.name) if path.parent.name == CHECKPOINTS else (path, "last")
    run = call("resume", RunReader, folder)
    call("resume", run.check_format)
    return run, name


def continued(cfg: DictConfig, run: RunReader) -> DictConfig:
    """The configuration of ``run``, and from ``cfg`` what was given on the command line and may differ.

    A whole command (with ``experiment=`` or another group) is compared as a whole.  Raises
    :class:`..errors.ConfigError` naming the keys that may not differ and do.
    """
    own = OmegaConf.to_container(cfg, resolve=False)
    trust = Trust.of(list(cfg.trust), [own])  # type: ignore[list-item]  # it has keys
    config = call("resume", check_stored, run)
    trust.check(config)
    saved = OmegaConf.create(config)
    changed = saved.copy()
    groups = HydraConfig.get().runtime.choices
    keys = [override.get_key_element().lstrip("+~") for override in parsed(HydraConfig.get().overrides.task)]
    if "scale.max_cache_gib" in keys:  # the engine's key has its value already
        raise ConfigError("scale.max_cache_gib: a run that goes on takes another bound by engine.max_cache_gib")
    for key in keys:
        if key != "resume" and (key not in groups or key in FREE):
            OmegaConf.update(changed, key, OmegaConf.select(cfg, key), merge=False, force_add=True)
    if "run_dir" in keys and Path(cfg.run_dir).resolve() != run.path.resolve():
        raise ConfigError(f"resume={run.path} goes on there, not in run_dir={cfg.run_dir}; leave run_dir out")
    whole = any(key in groups and key not in FREE for key in keys)
    check_equal(binding(_plain(saved)), binding(_plain(cfg if whole else changed)), REMEDY)
    OmegaConf.update(changed, "run_dir", str(run.path))
    OmegaConf.update(changed, "resume", None)
    OmegaConf.update(changed, "trust", cfg.trust, force_add=True)
    if OmegaConf.select(changed, ADDRESS) is not None:  # whose programs run with this user's rights: never a file's
        OmegaConf.update(changed, ADDRESS, OmegaConf.select(cfg, ADDRESS))
    return changed


def _plain(cfg: DictConfig) -> dict:
    return OmegaConf.to_container(cfg, resolve=True)  # type: ignore[return-value]
