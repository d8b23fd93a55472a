"""Signalling: rewards, turns and prompts, codes of demonstrators, the known optimum, tasks, refusals."""

from itertools import product
from random import Random
from typing import Any, get_args

import pytest

from troupe.envs.base import Skill
from troupe.envs.judging import METRIC
from troupe.envs.signalling.world import COLOURS, RECEIVER, SENDER, WORDS, Signalling, best_success, vocabulary
from troupe.experience import Split, Task

TARGET = ("red", "blue", "red", "white")


def begin(target: tuple[str, ...] = TARGET, **settings: Any) -> Signalling:
    world = Signalling(length=len(target), **settings)
    world.reset(Task("by-hand", "test", {"target": target}))
    return world


def prompt_of(world: Signalling, agent: str) -> str:
    return world.observe(agent)[-1]["content"]


async def play(world: Signalling, skill: Skill, rng: Random) -> bool:
    solved = False
    while acting := world.next_agents():
        (agent,) = acting
        solved = (await world.step({agent: world.demonstration(agent, rng, skill=skill)})).success
    return solved


# ---- rewards, turns and views ---------------------------------------------------------------------------------------


async def test_a_right_guess_is_a_success_and_ends_the_episode() -> None:
    world = begin(horizon=3)
    sent = await world.step({SENDER: "ba ne ba tu"})
    assert (sent.team, sent.local, sent.done, sent.info) == (0, {SENDER: 0}, False, {"malformed": 0, METRIC: 0})
    guess = await world.step({RECEIVER: "red blue red white"})
    assert (guess.team, guess.local, guess.done, guess.success) == (1, {RECEIVER: 0}, True, True)


async def test_a_turn_earns_what_it_betters() -> None:
    world, rewards = begin(horizon=4), []
    for guess in ("red blue black black", "red black black black", "red blue red black", "red blue red white"):
        await world.step({SENDER: "ba ne ba tu"})
        rewards.append((await world.step({RECEIVER: guess})).team)
    assert rewards == [0.5, 0, 0.25, 0.25]


async def test_what_each_sees() -> None:
    world = begin()
    assert (world.stages, world.next_agents()) == (((SENDER,), (RECEIVER,)), (SENDER,))
    assert [message["content"] for message in world.observe(SENDER)] == [
        "sender signalling",
        "colours red blue red white before none guess none",
    ]
    await world.step({SENDER: "ba ne ba tu"})
    assert prompt_of(world, RECEIVER) == "message ba ne ba tu before none guess none"
    assert not (await world.step({RECEIVER: "red red red red"})).done and world.turn == 1
    assert prompt_of(world, SENDER) == "colours red blue red white before ba ne ba tu guess red red red red"
    await world.step({SENDER: "ba ne"})
    assert prompt_of(world, RECEIVER) == "message malformed before ba ne ba tu guess red red red red"
    result = await world.step({RECEIVER: "grey red red red"})
    assert (result.team, result.done, result.info["malformed"]) == (0, True, 1)


def test_the_receiver_sees_nothing_of_the_colours() -> None:
    one, other = begin(), begin(("white", "white", "red", "black"))
    assert prompt_of(one, RECEIVER) == prompt_of(other, RECEIVER)


# ---- codes ----------------------------------------------------------------------------------------------------------


async def test_experts_use_one_code_and_novices_none() -> None:
    rng = Random(0)
    wins: dict[Skill, float] = {}
    for skill in get_args(Skill):
        worlds = [Signalling() for _ in range(200)]
        for world, task in zip(worlds, worlds[0].tasks("train", 200, 0), strict=True):
            world.reset(task)
        wins[skill] = sum([await play(world, skill, rng) for world in worlds]) / 200
    assert wins["expert"] == 1 and wins["novice"] < 0.03 and wins["flawed"] < 0.03


async def test_a_novice_draws_a_code_for_each_word() -> None:
    """Red is the first colour and white the eighth: each is named by one of four words, and each word read as one of
    four colours."""
    world, rng = begin(horizon=1), Random(0)
    messages = [world.demonstration(SENDER, rng, skill="novice").split() for _ in range(200)]
    assert {message[0] for message in messages} == {message[2] for message in messages} == set(WORDS[:4])
    assert {message[3] for message in messages} == {WORDS[7], *WORDS[:3]}
    await world.step({SENDER: "ba ne ba tu"})
    guesses = [world.demonstration(RECEIVER, rng, skill="novice").split() for _ in range(200)]
    assert {guess[0] for guess in guesses} == {COLOURS[0], *COLOURS[5:]}


async def test_demonstrators_know_no_other_words() -> None:
    world, rng, words = Signalling(horizon=3), Random(0), set(vocabulary())
    for task in world.tasks("train", 30, 0):
        for skill in get_args(Skill):
            world.reset(task)
            while acting := world.next_agents():
                (agent,) = acting
                text = world.demonstration(agent, rng, skill=skill)
                assert set(text.split()) <= words and len(text.split()) == world.length
                assert set(" ".join(message["content"] for message in world.observe(agent)).split()) <= words
                await world.step({agent: text})


def test_the_optimum_by_enumeration() -> None:
    """Every pair of a code and a reading (2 colours in 3 words, 3 in 2; two positions): the best mean success."""
    for colours, words in ((2, 3), (3, 2)):
        world = Signalling(length=2, colours=colours, words=words)
        targets = list(product(range(colours), repeat=2))
        messages = list(product(range(words), repeat=2))
        most = 0
        for code in product(range(len(messages)), repeat=len(targets)):
            # The best reading of a code names one target for each message in use.
            most = max(most, len(set(code)))
        assert best_success(world) == pytest.approx(most / len(targets))


# ---- tasks and refusals ---------------------------------------------------------------------------------------------


def test_splits_are_disjoint_by_sequence() -> None:
    seen: dict[str, set[tuple[str, ...]]] = {
        split: {task.data["target"] for seed in (0, 1) for task in Signalling().tasks(split, 300, seed)}
        for split in get_args(Split)
    }
    assert not seen["train"] & (seen["validation"] | seen["test"]) and not seen["validation"] & seen["test"]


def test_a_split_that_is_too_small_says_so() -> None:
    with pytest.raises(ValueError, match=r"found only \d+ of 100 different test tasks"):
        Signalling(length=2, colours=4).tasks("test", 100, 0)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"horizon": 0}, "env.horizon"),
        ({"length": 0}, "env.length"),
        ({"length": 9}, "env.length"),
        ({"colours": 1}, "env.colours"),
        ({"colours": len(COLOURS) + 1}, "env.colours"),
        ({"words": 1}, "env.words"),
        ({"words": len(WORDS) + 1}, "env.words"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, int], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        Signalling(**settings)
