"""The worlds of configs/env as they are composed, each composed once per process."""

from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from troupe.setup.composition import choices

WORLDS = choices("env")
SETTINGS = {name for name in WORLDS for other in WORLDS if name.startswith(f"{other}_")} - {"code_collab", "math_team"}
"""Worlds that are other settings of the world after which they are named."""

OF_EACH_CLASS = [pytest.param(name, marks=pytest.mark.slow if name in SETTINGS else ()) for name in WORLDS]
"""All worlds as parameters; without the slow tests one of each class."""


def env_config(name: str) -> dict[str, Any]:
    """The section ``env`` with ``env=NAME``, resolved."""
    return deepcopy(_env_config(name))


@cache
def _env_config(name: str) -> dict[str, Any]:
    with initialize_config_module("troupe.configs", version_base="1.3"):
        return OmegaConf.to_container(compose("train", overrides=[f"env={name}"]).env, resolve=True)  # type: ignore[return-value]
