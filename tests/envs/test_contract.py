"""Every world of configs/env keeps the contract, in each of its variants."""

from typing import Any

import pytest

from troupe.envs.testing import check_world
from troupe.setup.instantiation import build_world

from ..worlds import SETTINGS, WORLDS, env_config, slow_but

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "solo": {"team": "solo"},
    "full": {"tool_view": "full", "planner_view": "full"},
    "outcome_only": {"local_share": 0.0},
    "full_wording": {"wording": "full"},
    "every_rhyme": {"rhymes": 4},
    "at_once": {"order": "simultaneous"},
    "consensus": {"stop": "consensus"},
}
"""Settings; a world is tried in the variants whose keys it has."""


TEAM = {"code": (-1.0, 1.0), "kuhn": (-1.0, 1.0), "writing": (0.0, 3.0), "code_collab": (0.0, 4.0)}
"""Bounds of the team reward, where they are not 0 and 1: a program may pass fewer tests than the one before it, a
game of Kuhn poker may be lost, and Writing and Code collaboration give points."""


QUICK = {(name, "default") for name in WORLDS if name not in SETTINGS and name != "mixed"}
QUICK |= {("sokoban", "solo"), ("plan_path", "full"), ("search", "outcome_only"), ("sudoku", "full_wording")}
QUICK |= {("couplet", "every_rhyme"), ("math", "at_once"), ("math", "consensus")}
"""In the default tests: every class of worlds, and every variant once."""
CASES = [(name, variant) for name in WORLDS for variant in VARIANTS if variant == "default" or name not in SETTINGS]


@pytest.mark.parametrize(("name", "variant"), slow_but(QUICK, CASES))
async def test_the_world_keeps_the_contract(name: str, variant: str) -> None:
    settings = VARIANTS[variant]
    config = env_config(name)
    if not settings.keys() <= config.keys():
        pytest.skip(f"{name} has no {', '.join(settings.keys() - config.keys())}")
    if "data" in config or config.get("train"):
        pytest.skip(f"{name} needs data; its world keeps the contract in tests of its own")
    most = settings.get("local_share", config.get("local_share", 1.0))
    world = build_world("env", config | settings)
    try:
        await world.open()
        tasks = 4 if name in SETTINGS else 2  # of two boxes the solver may miss one in ten
        bounds, solved = TEAM.get(name, (0.0, 1.0)), 0.0 if world.opponents else 0.9  # of two experts one loses
        await check_world(world, tasks=tasks, team=bounds, local=(0.0, most), solved=solved)
    finally:
        await world.close()
