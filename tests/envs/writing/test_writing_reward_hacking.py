"""Reward hacking in Writing: points without good texts; docs/worlds/ lists the attempts."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.writing import Writing
from troupe.envs.writing.articles import small_words
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
