"""Upload a trained team to the Hugging Face hub.  The keys are those of ``configs/push_to_hub.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ..api.publishing import push_to_hub, write_hub_folder
from ..errors import ConfigError
from ..setup.evaluation import trained_team
from ..setup.parts import plain


def push(keys: Mapping[str, Any]) -> str:
    """Upload what ``keys`` name, or write it; returns what to say.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong, and
    :class:`~troupe.errors.PublishError`.
    """
    for key in ("run", "repo"):
        if keys[key] is None:
            raise ConfigError(f"{key} is missing: give run=DIR, a run directory, and repo=OWNER/NAME")
    if keys["out"] is not None and not keys["dry_run"]:
        raise ConfigError("out belongs to dry_run=true: an upload leaves no folder")

    run = trained_team("run", keys["run"], None).run
    assert run is not None  # it is a run's
    if keys["dry_run"]:
        folder = write_hub_folder(run, Path(keys["out"] or "hub"), keys["repo"], keys["checkpoint"], keys["license"])
        return f"{folder}: a dry run; nothing was uploaded"
    return push_to_hub(run, keys["repo"], keys["checkpoint"], private=keys["private"], license=keys["license"])


def run_command(cfg: DictConfig) -> None:
    """``troupe push-to-hub``, with the configuration that Hydra has composed."""
    print(push(plain(cfg)))
