"""Reward hacking in Writing: points without good texts; docs/worlds/ lists the attempts."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.writing import GeneratedPosts, Writing
from troupe.envs.writing.articles import small_words
from troupe.envs.writing.prompts import EXAMPLES
from troupe.experience import Task

WORDS = "anchor bridge candle desert feather garden"
TEXTS = st.lists(st.sampled_from([*small_words(), "anchor", "then", "poem"]), max_size=18).map(" ".join)


def begin(**settings: Any) -> Writing:
    world = Writing(**settings)
    world.reset(Task("by-hand", "test", {"article": WORDS}))
    return world


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=3, max_size=3))
async def test_no_way_to_more_than_the_best_turn(turns: list[tuple[str, str]]) -> None:
    world, total = begin(horizon=3, on_topic=1.0), 0.0
    for pair in turns:
        if world.next_agents():
            total += (await world.step(dict(zip(world.agents, pair, strict=True)))).team
    assert 0 <= total <= 3


async def test_transition_words_alone() -> None:
    """The published reward does not read the article."""
    links = {"concise": "also but thus", "detailed": "also but because thus then indeed"}
    assert (await begin().step(links)).team > 2.5
    assert (await begin(on_topic=1.0).step(links)).team == 0


async def test_copying_the_worked_example() -> None:
    """The published reward does not read the article: these two texts fit each other, whatever the post is about."""
    ((_, short, long),) = EXAMPLES["tldr"]
    for on_topic, most in ((0.0, 2.84), (1.0, 1.0)):
        world = Writing(kind="tldr", train=[GeneratedPosts()], examples=1, on_topic=on_topic)
        points = []
        for task in world.tasks("train", 100, 0):
            world.reset(task)
            points.append((await world.step({"concise": short, "detailed": long})).team)
        assert max(points) <= most + 1e-9 and min(points) >= (most - 1e-9 if on_topic == 0 else 0)


async def test_copying_the_post() -> None:
    """Its first words, and more of them: with ``on_topic``, too, since they are the article's."""
    for on_topic in (0.0, 1.0):
        world = Writing(kind="tldr", train=[GeneratedPosts()], on_topic=on_topic)
        for task in world.tasks("train", 50, 0):
            world.reset(task)
            words = task.data["article"].split()
            result = await world.step({"concise": " ".join(words[:8]), "detailed": " ".join(words[:20])})
            assert result.team > 1.5


async def test_repeating_a_text() -> None:
    world = begin(horizon=3)
    pair = {"concise": "the anchor bridge", "detailed": "the anchor bridge candle garden"}
    assert [(await world.step(pair)).team > 0 for _ in range(3)] == [True, False, False]


async def test_words_outside_of_the_lexicon() -> None:
    pair = {"concise": "the anchor bridge", "detailed": "then the anchor bridge candle poem"}
    assert (await begin().step(pair)).team == 0


async def test_leaving_it_to_the_other_writer() -> None:
    for silent in ("concise", "detailed"):
        pair = {"concise": "the anchor bridge", "detailed": "then the anchor bridge candle of", silent: ""}
        assert (await begin().step(pair)).team == 0
