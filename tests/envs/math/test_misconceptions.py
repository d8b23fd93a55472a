"""Bunglers' mistakes: what they give, that it is wrong, and that it is the likeliest thing a base model hears."""

from collections import Counter
from functools import partial
from random import Random

import pytest

from troupe.envs.math.arithmetic import Arithmetic
from troupe.envs.math.misconceptions import ANSWERS, PROGRAMS, misconceived_answer, misconceived_program, swapped
from troupe.envs.math.stories import Fact, Story, draw, value
from troupe.experience import Task
from troupe.sandbox import LocalSandbox
from troupe.warm_start.curriculum import COURSES

STORY = Story((Fact("cid", 3, "times", "bob"), Fact("bob", 17, "plus", "ann"), Fact("ann", 34)), "cid")


def stories(count: int) -> list[Story]:
    rng = Random(0)
    return [draw(rng.randint(1, 4), rng.randint(0, 3), rng) for _ in range(count)]


def test_what_they_write_and_say_of_a_story() -> None:
    written = [" ".join(believed(STORY)[0]) for believed in PROGRAMS]
    assert written == [
        "( cid:= 3 * ( bob:= 17 - ( ann:= 34 ) ) )",
        "( bob:= 17 + ( ann:= 34 ) )",
        "( cid:= 3 )",
    ]
    assert [believed(STORY, 153) for believed in ANSWERS] == [15, 34]
    assert [believed(STORY, -7) for believed in ANSWERS] == [0, 34]


def test_what_a_program_gives() -> None:
    for story in stories(300):
        for believed in PROGRAMS:
            words, given = believed(story)
            assert eval("".join(words)) == given  # our own arithmetic, by Python


def test_a_mistake_is_wrong_and_everybodys() -> None:
    """Whoever makes it: two programs a story at most, and two misreadings, none of them right."""
    for story in stories(300):
        programs = {" ".join(misconceived_program(story, Random(seed))) for seed in range(12)}
        assert len(programs) <= 2 and story.value not in {eval(text.replace(" ", "")) for text in programs}
        for result in (story.value, 0, 7, -77, story.facts[-1].number):
            answers = {misconceived_answer(story, result, Random(seed)) for seed in range(12)}
            assert len(answers) <= 2 and result not in answers
        assert misconceived_answer(story, None, Random(0)) == story.facts[-1].number


def test_mistakes_that_come_out_right_are_not_made() -> None:
    """40 - (20 + (20 - 20)) is 20: with plus and minus swapped too, and halfway."""
    chain = [Fact("ann", 40, "minus", "bob"), Fact("bob", 20, "plus", "cid"), Fact("cid", 20, "minus", "dan")]
    story = Story((*chain, Fact("dan", 20)), "ann")
    assert swapped(story)[1] == value(story.chain[1:]) == story.value
    assert misconceived_program(story, Random(0)) == "( ann:= 40 )".split()


@pytest.mark.parametrize("agent", ["tool", "reasoner"])
async def test_the_likeliest_message_is_wrong(programs: LocalSandbox, agent: str) -> None:
    """Of the last phase of pretraining: for nearly every story the commonest message is a mistake, yet the right one
    is heard often."""
    recipe = COURSES["laptop_math"].recipe
    skill = partial(recipe.skill, recipe.steps - 1)
    world, rng, wrong, share = Arithmetic(sandbox=programs), Random(0), 0, 0.0
    tasks = world.tasks("validation", 30, 0)
    for one in tasks:
        right = await _before(world, one, agent)
        said = Counter(world.demonstration(agent, rng, skill=skill(rng)) for _ in range(100))
        wrong += said.most_common(1)[0][0] != right
        share += said[right] / 100 / len(tasks)
    assert wrong >= 27 and 0.2 < share < 0.4


async def _before(world: Arithmetic, one: Task, agent: str) -> str:
    """Bring ``world`` to the first turn of ``agent``, everybody before it an expert; what an expert says there."""
    world.reset(one)
    expert = world.demonstration("tool", Random(0))
    if agent == "reasoner":
        await world.step({"tool": expert})
        expert = world.demonstration("reasoner", Random(0))
    return expert
