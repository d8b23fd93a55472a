"""The phases of a recipe."""

from collections import Counter
from random import Random

import pytest

from troupe.warm_start.recipe import WORLD_RECIPE, Recipe


def test_skills_by_phase() -> None:
    recipe, rng = Recipe(), Random(0)
    early, late = (Counter(recipe.skill(step, rng) for _ in range(2000)) for step in (0, recipe.steps - 1))
    assert early.keys() == {"expert", "novice"} and early["expert"] / 2000 == pytest.approx(0.8, abs=0.03)
    assert late.keys() == {"expert", "flawed"} and late["expert"] / 2000 == pytest.approx(0.12, abs=0.03)


@pytest.mark.parametrize("steps", [1, 7, 300, 6000])
def test_every_phase_keeps_its_share(steps: int) -> None:
    recipe = WORLD_RECIPE.lasting(steps)
    assert recipe.steps == steps and min(recipe.stable_steps, recipe.decay_steps, recipe.flawed_steps) >= 0
    assert recipe.flawed_steps == pytest.approx(steps / 4, abs=1)


def test_there_is_a_step() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        Recipe().lasting(0)
