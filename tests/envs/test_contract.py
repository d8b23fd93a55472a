"""Every world of configs/env keeps the contract, in each of its variants."""

from importlib import resources
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.utils import instantiate

from troupe.envs.testing import check_world

FILES = resources.files("troupe.configs").joinpath("env").iterdir()
WORLDS = sorted(file.name.removesuffix(".yaml") for file in FILES if file.name.endswith(".yaml"))

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "solo": {"team": "solo"},
    "full": {"tool_view": "full", "planner_view": "full"},
    "outcome_only": {"local_share": 0.0},
    "full_wording": {"wording": "full"},
    "every_rhyme": {"rhymes": 4},
    "consensus": {"stop": "consensus"},
}
"""Settings; a world is tried in the variants whose keys it has."""


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", WORLDS)
async def test_the_world_keeps_the_contract(name: str, variant: str) -> None:
    settings = VARIANTS[variant]
    with initialize_config_module("troupe.configs", version_base="1.3"):
        config = compose("train", overrides=[f"env={name}"]).env
    if not settings.keys() <= config.keys():
        pytest.skip(f"{name} has no {', '.join(settings.keys() - config.keys())}")
    most = settings.get("local_share", config.get("local_share", 1.0))
    world = instantiate(config, **settings)
    await world.open()
    await check_world(world, local=(0.0, most))
    await world.close()
