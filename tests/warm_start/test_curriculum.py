"""What the shipped base models were taught, and that a course can be taken."""

import json
from collections import Counter
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from troupe.envs.couplet.world import Couplet
from troupe.models.base_models import SHIPPED, base_path
from troupe.models.loading import load_model, load_tokenizer
from troupe.models.tiny import build_tokenizer
from troupe.warm_start.curriculum import COURSES, Recipe, _coding, _sandbox, messages
from troupe.warm_start.finetune import WarmStart, collate, export


def test_every_shipped_base_has_its_course() -> None:
    assert COURSES.keys() == set(SHIPPED)


@pytest.mark.parametrize("base", SHIPPED)
def test_a_shipped_base_was_made_by_its_course(base: str) -> None:
    recipe = json.loads((base_path(base) / "recipe.json").read_text())
    assert recipe.pop("seconds") > 0
    assert recipe == asdict(COURSES[base].recipe)
    assert load_tokenizer(base).get_vocab() == build_tokenizer(COURSES[base].words).get_vocab()


async def test_all_who_act_at_once_are_learnt_from() -> None:
    course = COURSES["laptop_couplet"]
    world = course.world(0, Random(0))
    assert isinstance(world, Couplet)
    examples = await messages(world, 200, partial(course.recipe.skill, 0), Random(0))
    spoken = Counter(seen[0]["content"] for seen, _ in examples)
    assert len(examples) >= 200 and spoken["first couplet"] == spoken["second couplet"]
    assert {seen[1]["content"].endswith("theirs none") for seen, _ in examples} == {True, False}  # both turns


def test_nobody_teaches_couplet_an_agreement() -> None:
    recipe, rng = COURSES["laptop_couplet"].recipe, Random(0)
    assert {recipe.skill(step, rng) for step in range(recipe.steps)} == {"novice"}


async def test_code_is_taught_in_every_role() -> None:
    course, rng = COURSES["laptop_code"], Random(0)
    spoken: Counter[str] = Counter()
    for step in range(12):
        world = course.world(step, rng)
        examples = await messages(world, 8, partial(course.recipe.skill, step), rng)
        spoken.update(seen[0]["content"] for seen, _ in examples)
        assert {word for seen, text in examples for word in f"{seen[1]['content']} {text}".split()} <= {*course.words}
    await _sandbox().close()
    _coding.cache_clear()
    _sandbox.cache_clear()
    assert spoken.keys() == {"tester code", "coder code", "solo code"}


def test_skills_by_phase() -> None:
    recipe, rng = Recipe(), Random(0)
    early, late = (Counter(recipe.skill(step, rng) for _ in range(2000)) for step in (0, recipe.steps - 1))
    assert early.keys() == {"expert", "novice"} and early["expert"] / 2000 == pytest.approx(0.8, abs=0.03)
    assert late.keys() == {"expert", "bungler"} and late["expert"] / 2000 == pytest.approx(0.12, abs=0.03)


def test_only_answers_are_fitted() -> None:
    tokenizer = build_tokenizer("ask this more say it".split())
    prompt = [{"role": "user", "content": "ask this more"}]
    ((ids, labels),) = collate(tokenizer, [(prompt, "say it"), (prompt, "it")], parts=1)
    for row, length in enumerate((1, 2)):  # short ones first
        fitted = labels[row] != -100
        assert ids.shape[1] == 16 and int(fitted.sum()) == length + 1
        assert (labels[row][fitted] == ids[row][fitted]).all()
        assert tokenizer.decode(labels[row][fitted]) == ("it <eos>", "say it <eos>")[row]


def test_a_course_can_be_taken_interrupted_and_exported(tmp_path: Path) -> None:
    recipe = Recipe(hidden=16, layers=1, heads=2, stable=4, decay=2, bunglers=0, rows=16, warmup=1, experts=0.5)
    course = replace(COURSES["laptop_couplet"], recipe=recipe)
    start = WarmStart(course, tmp_path / "out")
    start.run(until=3)
    again = WarmStart(course, tmp_path / "out")
    again.load()
    assert again.step == 3
    again.run()
    export(again, tmp_path / "base")
    model = load_model(str(tmp_path / "base"))
    assert again.step == recipe.steps == 6
    for name, weight in again.model.state_dict().items():
        assert (model.state_dict()[name] == weight).all(), name
    listed = json.loads((tmp_path / "base" / "checksums.json").read_text())
    assert {"config.json", "model.safetensors", "tokenizer.json", "recipe.json"} <= listed.keys()
