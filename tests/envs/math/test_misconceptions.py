"""Systematic mistakes: their values, which are wrong, and their share, which makes them the likeliest messages."""

from collections import Counter
from functools import partial
from random import Random

import pytest

from troupe.envs.math.arithmetic import (
    ANSWERS,
    PROGRAMS,
    Arithmetic,
    Fact,
    Story,
    chain_value,
    misconceived_answer,
    misconceived_program,
    sample_story,
    swap_plus_and_minus,
)
from troupe.experience import Task
from troupe.sandbox import LocalSandbox
from troupe.warm_start.curriculum import CURRICULA

STORY = Story((Fact("cid", 3, "times", "bob"), Fact("bob", 17, "plus", "ann"), Fact("ann", 34)), "cid")


def stories(count: int) -> list[Story]:
    rng = Random(0)
    return [sample_story(rng.randint(1, 4), rng.randint(0, 3), rng) for _ in range(count)]


def test_misconceptions_by_hand() -> None:
    programs = [" ".join(misconception(STORY)[0]) for misconception in PROGRAMS]
    assert programs == [
        "( cid:= 3 * ( bob:= 17 - ( ann:= 34 ) ) )",
        "( bob:= 17 + ( ann:= 34 ) )",
        "( cid:= 3 )",
    ]
    assert [misconception(STORY, 153) for misconception in ANSWERS] == [15, 34]
    assert [misconception(STORY, -7) for misconception in ANSWERS] == [0, 34]


def test_values_of_programs() -> None:
    for story in stories(300):
        for misconception in PROGRAMS:
            words, value = misconception(story)
            assert eval("".join(words)) == value  # our own arithmetic, by Python


def test_a_mistake_is_wrong_and_the_same_for_all() -> None:
    """At most two programs per story, and two misreadings per result, none of them right."""
    for story in stories(300):
        programs = {" ".join(misconceived_program(story, Random(seed))) for seed in range(12)}
        assert len(programs) <= 2 and story.value not in {eval(text.replace(" ", "")) for text in programs}
        for result in (story.value, 0, 7, -77, story.facts[-1].number):
            answers = {misconceived_answer(story, result, Random(seed)) for seed in range(12)}
            assert len(answers) <= 2 and result not in answers
        assert misconceived_answer(story, None, Random(0)) == story.facts[-1].number


def test_mistakes_that_come_out_right_are_not_made() -> None:
    """40 - (20 + (20 - 20)) is 20, also with plus and minus swapped, and without the first relation."""
    chain = [Fact("ann", 40, "minus", "bob"), Fact("bob", 20, "plus", "cid"), Fact("cid", 20, "minus", "dan")]
    story = Story((*chain, Fact("dan", 20)), "ann")
    assert swap_plus_and_minus(story)[1] == chain_value(story.chain[1:]) == story.value
    assert misconceived_program(story, Random(0)) == "( ann:= 40 )".split()


@pytest.mark.parametrize("agent", ["tool", "reasoner"])
async def test_the_likeliest_message_is_wrong(programs: LocalSandbox, agent: str) -> None:
    """Of the last phase of pretraining: for nearly every story the commonest message is a mistake, yet the right one
    is frequent."""
    recipe = CURRICULA["laptop_math"].recipe
    skill = partial(recipe.skill, recipe.steps - 1)
    world, rng, wrong, share = Arithmetic(sandbox=programs), Random(0), 0, 0.0
    tasks = world.tasks("validation", 30, 0)
    for one in tasks:
        right = await _before(world, one, agent)
        messages = Counter(world.demonstration(agent, rng, skill=skill(rng)) for _ in range(100))
        wrong += messages.most_common(1)[0][0] != right
        share += messages[right] / 100 / len(tasks)
    assert wrong >= 27 and 0.2 < share < 0.4


async def _before(world: Arithmetic, one: Task, agent: str) -> str:
    """Bring ``world`` to the first turn of ``agent``, everybody before it an expert; what an expert says there."""
    world.reset(one)
    expert = world.demonstration("tool", Random(0))
    if agent == "reasoner":
        await world.step({"tool": expert})
        expert = world.demonstration("reasoner", Random(0))
    return expert
