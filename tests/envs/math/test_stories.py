"""Stories of numbers: their text, their arithmetic, their tasks."""

from random import Random

from troupe.envs.math.arithmetic import Fact, Story, chain_value, expression, parse_story, sample_story, story_task

STORY = Story((Fact("cid", 3, "times", "bob"), Fact("bob", 17, "plus", "ann"), Fact("ann", 34)), "cid")
RIGHT = "( cid:= 3 * ( bob:= 17 + ( ann:= 34 ) ) )"


def test_a_story_and_its_text() -> None:
    assert STORY.text == "cid:= 3 times bob ; bob:= 17 plus ann ; ann:= 34 ; ask cid"
    assert parse_story(STORY.text) == STORY and STORY.value == 153
    assert " ".join(expression(STORY.chain)) == RIGHT
    rng = Random(0)
    for _ in range(200):
        story = sample_story(rng.randint(1, 4), rng.randint(0, 3), rng)
        assert parse_story(story.text) == story
        assert eval("".join(expression(story.chain))) == story.value  # our own arithmetic, by Python


def test_minus_and_a_negative_answer() -> None:
    chain = [Fact("ann", 10, "minus", "bob"), Fact("bob", 34)]
    assert chain_value(chain) == -24 and " ".join(expression(chain)) == "( ann:= 10 - ( bob:= 34 ) )"


def test_the_id_of_a_task_is_its_arithmetic() -> None:
    """Other names, another order, other facts that do not matter: the same task in the same split."""
    other = Story((Fact("eva", 34), Fact("hal", 3, "times", "dan"), Fact("dan", 17, "plus", "eva")), "hal")
    extra = Story((*STORY.facts, Fact("gus", 5, "times", "ann")), "cid")
    same = [story_task("math", story) for story in (STORY, other, extra)]
    assert len({(t.task_id, t.split) for t in same}) == 1
    assert story_task("math", Story(STORY.facts, "bob")).task_id != same[0].task_id
