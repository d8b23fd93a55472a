"""Sandboxed worlds: bounds of the rewards of any sequence of messages, and forks that do not change each other."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.envs.base import StepResult, TeamEnv
from troupe.envs.code import MicroCode
from troupe.envs.math.arithmetic import Arithmetic
from troupe.sandbox import LocalSandbox

WORDS = "again say none result ; is * + - ( ) - 1 2 3 5 7 12 a b c ann bob:= 1 1 1 is 1".split()
SKILLS = ("expert", "novice", "flawed")
MOODS = st.lists(st.tuples(st.sampled_from([*SKILLS, "words", "silence", "repeat"]), st.integers(0, 999)), min_size=9)
BOTH = {"team": st.sampled_from(["pair", "solo"]), "horizon": st.integers(1, 4)}
CODE = st.fixed_dictionaries(
    {
        **BOTH,
        "order": st.sampled_from(["sequential", "simultaneous"]),
        "max_tests": st.integers(1, 3),
        "local_share": st.sampled_from([0.0, 0.2, 1.0]),
    }
)
MATH = st.fixed_dictionaries(
    {
        **BOTH,
        "stop": st.sampled_from(["answer", "consensus"]),
        "links": st.integers(1, 3),
        "local_share": st.sampled_from([0.0, 0.1, 1.0]),
    }
)

Mood = tuple[str, int]


def message(world: TeamEnv, agent: str, mood: Mood, before: str) -> str:
    kind, number = mood
    rng = Random(number)
    if kind in SKILLS:
        return world.demonstration(agent, rng, skill=kind)  # type: ignore[arg-type]
    return {"words": " ".join(rng.choices(WORDS, k=rng.randint(1, 9))), "repeat": before}.get(kind, "")


async def play(
    world: TeamEnv, moods: list[Mood], seed: int, share: float
) -> tuple[float, dict[str, float], StepResult | None]:
    """The sums of the team's rewards of the messages that end a turn and of each agent's local ones; the last step."""
    world.reset(world.tasks("train", 1, seed)[0])
    team, local, past, last = 0.0, dict.fromkeys(world.agents, 0.0), "", None
    for place in range(3 * world.horizon):
        acting, turn = world.next_agents(), world.turn
        if not acting:
            break
        texts = {agent: message(world, agent, moods[(place + i) % len(moods)], past) for i, agent in enumerate(acting)}
        key, fork, other = world.state_key(), world.fork(), world.fork()
        elsewhere = await other.step({agent: message(world, agent, moods[place - 1], past) for agent in acting})
        assert world.state_key() == key == fork.state_key(), "a fork changes its original, or its sibling"
        last, again = await asyncio.gather(world.step(texts), fork.step(texts))
        assert last == again and world.state_key() == fork.state_key(), "siblings differ"
        for result in (last, elsewhere):
            assert all(0 <= reward <= share + 1e-9 for reward in result.local.values())
            assert -1 - 1e-9 <= result.team <= 1 + 1e-9
        team += last.team * (world.turn > turn)
        local = {agent: reward + last.local.get(agent, 0.0) for agent, reward in local.items()}
        past = next(iter(texts.values()))
    assert last is not None and last.done and not world.next_agents()
    return team, local, last


def sums(
    make: Callable[..., TeamEnv], config: dict[str, Any], moods: list[Mood], seed: int
) -> tuple[float, dict[str, float], StepResult]:
    async def main() -> Any:
        return await play(make(**config), moods, seed, config["local_share"])

    return asyncio.run(main())


@settings(max_examples=40)
@given(CODE, MOODS, st.integers(0, 99))
def test_rewards_of_programs_sum_to_the_share_of_the_last(
    programs: LocalSandbox, config: dict[str, Any], moods: list[Mood], seed: int
) -> None:
    team, local, last = sums(lambda **of: MicroCode(programs, **of), config, moods, seed)
    assert abs(team - last.info["hidden_passed"]) < 1e-9
    assert last.success == (last.info["hidden_passed"] == 1)
    coder = "coder" if config["team"] == "pair" else "solo"
    assert local[coder] <= config["local_share"] + 1e-9, "local rewards of one agent's progress sum to its share"


@settings(max_examples=40)
@given(MATH, MOODS, st.integers(0, 99))
def test_rewards_of_answers_sum_to_one_at_most(
    programs: LocalSandbox, config: dict[str, Any], moods: list[Mood], seed: int
) -> None:
    team, local, last = sums(lambda **of: Arithmetic(sandbox=programs, **of), config, moods, seed)
    assert 0 <= team <= 1 + 1e-9
    assert not last.success or abs(team - 1) < 1e-9, "a success earns 1 in total"
    assert all(reward <= config["local_share"] * config["horizon"] + 1e-9 for reward in local.values())
