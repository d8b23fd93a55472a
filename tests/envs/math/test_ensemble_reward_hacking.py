"""Reward hacking in teams of many: reward without a solution; docs/worlds/ lists the attempts."""

from random import Random

import pytest

from troupe.sandbox import LocalSandbox

from .test_ensemble import PROGRAM, RIGHT, WRONG, begin, play


async def test_a_reasoner_has_one_vote(programs: LocalSandbox) -> None:
    """Saying an answer many times is no answer."""
    texts = (PROGRAM, PROGRAM, RIGHT, RIGHT, f"{WRONG} {WRONG} {WRONG}")
    assert (await play(begin(programs, size=5, decision="vote"), *texts)).success


async def test_agreeing_on_a_wrong_answer(programs: LocalSandbox) -> None:
    """A judge, or voters, who agree with everybody earn nothing for it."""
    assert (await play(begin(programs), "1 + 6", "say 7", "say 7")).team == 0.0
    assert (await play(begin(programs, size=3, decision="vote"), "1 + 6", "say 7", "say 7")).team == 0.0


async def test_speaking_for_the_judge(programs: LocalSandbox) -> None:
    world = begin(programs)
    with pytest.raises(ValueError, match="expects a message of tool_1"):
        await world.step({"judge": RIGHT})


async def test_an_episode_earns_its_outcome_once(programs: LocalSandbox) -> None:
    """Any messages: rewards of a message are in [0, 1], and the episode's outcome is that of its last."""
    rng = Random(0)
    for _ in range(60):
        world, total = begin(programs, size=5, decision=rng.choice(["judge", "vote"])), 0.0
        while acting := world.next_agents():
            turn = world.turn
            result = await world.step({agent: rng.choice([PROGRAM, RIGHT, WRONG, "", "say"]) for agent in acting})
            assert 0 <= result.team <= 1 and all(0 <= local <= 1 for local in result.local.values())
            total += result.team * (world.turn > turn)
        assert total == float(result.success)
