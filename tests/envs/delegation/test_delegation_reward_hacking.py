"""Reward hacking in delegation: reward without an answer; docs/worlds/ lists the attempts."""

from random import Random

import pytest

from troupe.envs.testing import GARBAGE

from .conftest import EXPERT, RIGHT, begin, say


async def test_answering_without_a_call() -> None:
    """Right numbers that nobody was called for are a guess."""
    result = await say(begin(), orchestrator=RIGHT)
    assert (result.team, result.local["orchestrator"], result.success, result.info["guessed"]) == (0, 0, False, 1)


async def test_answering_after_a_part_of_the_calls() -> None:
    world = begin()
    await say(world, orchestrator="call bob blue")
    await say(world, blue="say bob 7")
    assert (await say(world, orchestrator=RIGHT)).team == 0


async def test_calling_again_and_again() -> None:
    """The same calls pay once, and cost from then on."""
    world = begin(horizon=6)
    teams = []
    while acting := world.next_agents():
        result = await world.step(dict.fromkeys(acting, EXPERT))
        if acting == ("orchestrator",):
            teams.append(result.team)
    assert teams == [0.5, 0, 0, 0, 0, 0]


async def test_calling_in_the_last_turn() -> None:
    result = await say(begin(horizon=1), orchestrator=EXPERT)
    assert (result.team, result.local["orchestrator"], result.done) == (0, 0, True)


async def test_answering_in_the_place_of_a_worker() -> None:
    world = begin()
    with pytest.raises(ValueError, match="delegation expects"):
        await say(world, red="say ann 4")
    await say(world, orchestrator=EXPERT)
    with pytest.raises(ValueError, match="delegation expects"):
        await say(world, orchestrator=RIGHT)


async def test_no_way_to_more_than_the_answer() -> None:
    """The orchestrator's rewards of an episode sum to at most 1, for any messages."""
    texts = [EXPERT, "call bob blue", "call ann red", RIGHT, "say bob 4 ann 7", "call cid red dan grey", *GARBAGE[:20]]
    rng = Random(0)
    for _ in range(300):
        world, total = begin(horizon=4), 0.0
        while acting := world.next_agents():
            result = await world.step({agent: rng.choice(texts) for agent in acting})
            total += result.team if acting == ("orchestrator",) else 0.0
            assert 0 <= result.team <= 1 and all(0 <= local <= 0.2 for local in result.local.values())
        assert total <= 1 + 1e-9


async def test_ten_thousand_garbage_messages() -> None:
    """Garbage earns no team reward at any step, before calls and after them."""
    rng, count = Random(0), 0
    texts = [text for text in GARBAGE if len(text) < 10_000]
    while count < 10_000:
        world = begin(horizon=3, order=rng.choice(["simultaneous", "sequential"]))
        if rng.random() < 0.5:
            await say(world, orchestrator=EXPERT)
        while acting := world.next_agents():
            result = await world.step({agent: rng.choice(texts) for agent in acting})
            count += len(acting)
            assert result.team == 0 and not result.success
