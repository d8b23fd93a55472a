"""The curricula of the shipped base models."""

import json
import pickle
from collections import Counter
from dataclasses import asdict
from functools import partial
from random import Random

import pytest

from troupe.envs.base import TeamEnv
from troupe.envs.couplet.world import Couplet
from troupe.models.bases.base_models import SHIPPED, base_path
from troupe.models.bases.loading import load_tokenizer
from troupe.models.bases.tiny import build_tokenizer
from troupe.warm_start.curriculum import CURRICULA, _micro_code, _sandbox, curriculum_of, messages
from troupe.warm_start.recipe import WORLD_RECIPE


def test_every_shipped_base_has_its_curriculum() -> None:
    assert CURRICULA.keys() == set(SHIPPED)


@pytest.mark.parametrize("base", SHIPPED)
def test_a_shipped_base_was_made_by_its_curriculum(base: str) -> None:
    recipe = json.loads((base_path(base) / "recipe.json").read_text())
    assert recipe["seconds"] > 0
    assert recipe.items() >= asdict(CURRICULA[base].recipe).items()
    assert load_tokenizer(base).get_vocab() == build_tokenizer(CURRICULA[base].words).get_vocab()


async def test_all_agents_that_act_at_once_give_examples() -> None:
    curriculum = CURRICULA["laptop_couplet"]
    world = curriculum.world(0, Random(0))
    assert isinstance(world, Couplet)
    examples = await messages(world, 200, partial(curriculum.recipe.skill, 0), Random(0))
    prompts = Counter(prompt[0]["content"] for prompt, _ in examples)
    assert len(examples) >= 200 and prompts["first couplet"] == prompts["second couplet"]
    assert {prompt[1]["content"].endswith("theirs none") for prompt, _ in examples} == {True, False}  # both turns


def test_couplet_has_no_expert() -> None:
    recipe, rng = CURRICULA["laptop_couplet"].recipe, Random(0)
    assert {recipe.skill(step, rng) for step in range(recipe.steps)} == {"novice"}


async def test_code_has_every_role() -> None:
    curriculum, rng = CURRICULA["laptop_code"], Random(0)
    prompts: Counter[str] = Counter()
    for step in range(12):
        world = curriculum.world(step, rng)
        examples = await messages(world, 8, partial(curriculum.recipe.skill, step), rng)
        prompts.update(prompt[0]["content"] for prompt, _ in examples)
        words = {word for prompt, text in examples for word in f"{prompt[1]['content']} {text}".split()}
        assert words <= {*curriculum.words}
    await _sandbox().close()
    _micro_code.cache_clear()
    _sandbox.cache_clear()
    assert prompts.keys() == {"tester code", "coder code", "solo code"}


@pytest.mark.slow
async def test_code_collaboration_has_every_role_after_a_world_was_closed() -> None:
    """The command closes the first world before the demonstrations begin."""
    curriculum, rng = CURRICULA["laptop_code_collab"], Random(1)
    seen: Counter[str] = Counter()
    for step in range(10):
        world = curriculum.world(step, rng)
        for prompt, text in await messages(world, 6, partial(curriculum.recipe.skill, step), rng):
            seen[prompt[0]["content"]] += 1
            seen[prompt[1]["content"].split()[8]] += 1  # after "mine"
            assert {*prompt[1]["content"].split(), *text.split()} <= {*curriculum.words}
        await world.close()
    _sandbox.cache_clear()
    assert seen.keys() == {"aux code_collab", "main code_collab", "solo code_collab", "none", "def"}


class Silent(Couplet):
    """A world without demonstrations."""

    demonstration = TeamEnv.demonstration


def test_a_world_without_demonstrations_is_refused() -> None:
    with pytest.raises(ValueError, match="Silent has no demonstrations"):
        curriculum_of(Silent(), WORLD_RECIPE, 300)


@pytest.mark.parametrize("base", SHIPPED)
def test_every_curriculum_reaches_another_process(base: str) -> None:
    """The demonstrations are made by a worker, which is not a fork everywhere."""
    curriculum = pickle.loads(pickle.dumps(CURRICULA[base]))
    assert curriculum.recipe == CURRICULA[base].recipe
