"""The worlds of configs/env as they are composed, each composed once per process."""

from collections.abc import Collection, Iterable
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


def slow_but(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """``values`` as parameters, of which the default tests have only those that are in ``quick``."""
    several = ((value, value if isinstance(value, tuple) else (value,)) for value in values)
    return [pytest.param(*each, marks=() if value in quick else pytest.mark.slow) for value, each in several]


OF_EACH_CLASS = slow_but({*WORLDS} - SETTINGS, WORLDS)
"""All worlds as parameters; without the slow tests one of each class."""


def env_config(name: str) -> dict[str, Any]:
    """The section ``env`` with ``env=NAME``, resolved."""
    return deepcopy(_env_config(name))


@cache
def _env_config(name: str) -> dict[str, Any]:
    with initialize_config_module("troupe.configs", version_base="1.3"):
        return OmegaConf.to_container(compose("train", overrides=[f"env={name}"]).env, resolve=True)  # type: ignore[return-value]
