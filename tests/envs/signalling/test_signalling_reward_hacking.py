"""Reward hacking in Signalling: reward without a right guess; docs/worlds/ lists the attempts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.signalling.world import COLOURS, RECEIVER, SENDER, WORDS, Signalling
from troupe.experience import Task

TARGET = ("red", "blue", "red", "white")
TEXTS = st.lists(st.sampled_from([*COLOURS, *WORDS, "malformed", "message", "\n", "none"]), max_size=6).map(" ".join)


def begin(horizon: int = 3) -> Signalling:
    world = Signalling(length=4, horizon=horizon)
    world.reset(Task("by-hand", "test", {"target": TARGET}))
    return world


async def turn(world: Signalling, message: str, guess: str) -> float:
    await world.step({SENDER: message})
    return (await world.step({RECEIVER: guess})).team


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=3, max_size=3))
async def test_no_way_to_more_than_the_best_guess(turns: list[tuple[str, str]]) -> None:
    world, total, best = begin(), 0.0, 0.0
    for message, guess in turns:
        if not world.next_agents():
            break
        total += await turn(world, message, guess)
        words = guess.split()
        right = sum(a == b for a, b in zip(words, TARGET, strict=False)) / 4
        best = max(best, right if len(words) == 4 and set(words) <= set(COLOURS) else 0)
    assert total == pytest.approx(best) and best <= 1


async def test_holding_back_a_right_guess() -> None:
    world = begin()
    assert [await turn(world, "ba ba ba ba", guess) for guess in ("red red black black", "red blue red white")] == [
        0.25,
        0.75,
    ]


async def test_telling_the_colours_in_plain_words() -> None:
    """The sender's message is code words alone: else there were nothing to agree upon."""
    world = begin()
    for message in ("red blue red white", "ba ne ba white", "ba ne ba tu tu", "BA NE BA TU", ""):
        await world.step({SENDER: message})
        assert world.observe(RECEIVER)[-1]["content"].startswith("message malformed before")
        await world.step({RECEIVER: ""})
        world.reset(Task("by-hand", "test", {"target": TARGET}))


@pytest.mark.parametrize(
    "guess", ["red blue red white red", "red " * 40, "red blue red white tu", "red,blue,red,white"]
)
async def test_guessing_more_than_there_is(guess: str) -> None:
    assert await turn(begin(), "ba ne ba tu", guess) == 0
