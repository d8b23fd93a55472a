"""Teams of many in mathematics: who acts, what each sees, rewards by hand, ways to earn without an answer."""

from typing import Any

import pytest

from troupe.envs.math.arithmetic import Arithmetic
from troupe.envs.math.ensemble import Ensemble, members
from troupe.envs.math.questions import MathQuestions
from troupe.envs.math.word_problems import WordProblems
from troupe.envs.testing import check_world
from troupe.experience import Task
from troupe.sandbox import Limits, LocalSandbox

from .conftest import Fixed

STORY = "bob:= 17 plus ann ; ann:= 34 ; ask bob"
TASK = Task("by-hand", "test", {"question": STORY, "answer": "51"})
QUESTION = Task("question", "test", {"question": "How many?", "answer": "51", "several": False})
PROGRAM, RIGHT, WRONG = "( bob:= 17 + ( ann:= 34 ) )", "say 5 1", "say 1 7"


def begin(sandbox: LocalSandbox, *, local_share: float = 1.0, **settings: Any) -> Ensemble:
    world = Ensemble(pair=Arithmetic(sandbox=sandbox, horizon=1, local_share=local_share), **settings)
    world.reset(TASK)
    return world


async def play(world: Ensemble, *texts: str) -> Any:
    """A text of each agent, in their order; the result of the last step."""
    rest, result = list(texts), None
    while rest:
        result = await world.step({agent: rest.pop(0) for agent in world.next_agents()})
    return result


def prompt(world: Ensemble, agent: str) -> str:
    return world.observe(agent)[1]["content"]


@pytest.mark.parametrize(
    ("size", "decision", "agents"),
    [
        (3, "judge", "tool_1 reasoner_1 judge"),
        (5, "judge", "tool_1 tool_2 reasoner_1 reasoner_2 judge"),
        (7, "judge", "tool_1 tool_2 tool_3 reasoner_1 reasoner_2 reasoner_3 judge"),
        (3, "vote", "tool_1 reasoner_1 reasoner_2"),
        (5, "vote", "tool_1 tool_2 reasoner_1 reasoner_2 reasoner_3"),
        (7, "vote", "tool_1 tool_2 tool_3 reasoner_1 reasoner_2 reasoner_3 reasoner_4"),
    ],
)
def test_the_agents_follow_from_the_size(size: int, decision: Any, agents: str, programs: LocalSandbox) -> None:
    assert members(size, decision) == agents.split()
    assert begin(programs, size=size, decision=decision).agents == tuple(agents.split())


@pytest.mark.parametrize("size", [-1, 0, 1, 2, 4])
def test_sizes_without_a_majority_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"env\.size must be odd and at least 3"):
        members(size)


@pytest.mark.parametrize("key", ["team", "horizon", "stop", "order"])
def test_pairs_of_another_kind_are_refused(key: str, programs: LocalSandbox) -> None:
    other = {"team": "solo", "horizon": 2, "stop": "consensus", "order": "simultaneous"}
    pair = Arithmetic(sandbox=programs, **{"horizon": 1, key: other[key]})
    with pytest.raises(ValueError, match=rf"env\.pair\.{key}"):
        Ensemble(pair=pair)


@pytest.mark.parametrize(
    ("size", "decision", "order"),
    [(5, "vote", "simultaneous"), pytest.param(7, "judge", "simultaneous", marks=pytest.mark.slow)],
)
async def test_the_contract(size: int, decision: Any, order: Any, programs: LocalSandbox) -> None:
    await check_world(begin(programs, size=size, decision=decision, order=order), tasks=1)


# ---- who sees what --------------------------------------------------------------------------------------------------


async def test_each_reasoner_sees_one_program_and_the_judge_all(programs: LocalSandbox) -> None:
    world = begin(programs, size=5)
    await play(world, PROGRAM, "2 + 3")
    assert prompt(world, "reasoner_1") == f"{STORY} result 5 1"
    await play(world, RIGHT)
    assert prompt(world, "reasoner_2") == f"{STORY} result 5"
    await play(world, "mumbling")
    assert prompt(world, "judge") == f"{STORY} result 5 1 result 5 result 5 1 result none"


async def test_more_reasoners_than_programs_share_them(programs: LocalSandbox) -> None:
    world = begin(programs, size=3, decision="vote")
    await play(world, PROGRAM, WRONG)
    assert prompt(world, "reasoner_2") == f"{STORY} result 5 1"


async def test_agents_act_at_the_same_time(programs: LocalSandbox) -> None:
    world = begin(programs, size=5, order="simultaneous")
    assert world.stages == (("tool_1", "tool_2"), ("reasoner_1", "reasoner_2"), ("judge",))
    result = await world.step({"tool_1": PROGRAM, "tool_2": "9"})
    assert (result.team, result.local["tool_1"], result.local["tool_2"]) == (0.5, 1.0, pytest.approx(0.2))


async def test_questions_in_words(reading: LocalSandbox) -> None:
    pair = MathQuestions(
        sandbox=reading, train=[Fixed()], test=[Fixed()], limits=Limits(cpu_s=1.0, idle_s=1.0), horizon=1, stop="answer"
    )
    world = Ensemble(pair=pair)
    world.reset(QUESTION)
    await play(world, "```python\nprint(51)\n```", "It is \\boxed{50}.")
    system, user = (message["content"] for message in world.observe("judge"))
    assert "judge" in system and user == "Problem:\nHow many?\n\nProposals:\ntool_1: 51\nreasoner_1: 50"
    result = await play(world, "\\boxed{51}")
    assert (result.team, result.success) == (1.0, True)


async def test_word_problems(programs: LocalSandbox) -> None:
    world = Ensemble(pair=WordProblems(sandbox=programs))
    world.reset(Task("word", "test", {"question": "Tom has 60 pens. Tom loses 9.", "answer": "51"}))
    await play(world, "60 - 9", "I do not know")
    assert world.observe("judge")[-1]["content"] == "Tom has 60 pens. Tom loses 9. Result: 51, no result"
    assert (await play(world, "51")).success


# ---- rewards --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "team", "local", "success"),
    [
        ((PROGRAM,), 1.0, 1.0, False),
        (("2 + 3",), 0.0, 0.2, False),
        ((PROGRAM, RIGHT), 1.0, 1.0, False),
        ((PROGRAM, WRONG), 0.0, 0.2, False),
        ((PROGRAM, WRONG, RIGHT), 1.0, 1.0, True),
        ((PROGRAM, RIGHT, WRONG), 0.0, 0.2, False),  # the judge decides
        (("", "", RIGHT), 1.0, 1.0, True),  # whatever the others did
        ((PROGRAM, RIGHT, ""), 0.0, 0.0, False),
        ((PROGRAM, RIGHT, "again"), 0.0, 0.2, False),  # as a reasoner's in the last turn of a pair
    ],
)
async def test_rewards(
    texts: tuple[str, ...], team: float, local: float, success: bool, programs: LocalSandbox
) -> None:
    result = await play(begin(programs), *texts)
    assert (result.team, *result.local.values()) == (team, pytest.approx(local))
    assert (result.done, result.success) == (len(texts) == 3, success)


VOTES = [
    ((RIGHT, RIGHT, WRONG), True),
    ((WRONG, RIGHT, RIGHT), True),
    ((WRONG, WRONG, RIGHT), False),
    ((RIGHT, WRONG, "say 9"), True),  # a draw: the earliest
    ((WRONG, RIGHT, "say 9"), False),
    (("", "", RIGHT), True),  # who says nothing has no vote
    (("", RIGHT, "say 0 5 1"), True),  # equal numbers, written differently
    (("", "", ""), False),
]


@pytest.mark.parametrize(("answers", "success"), VOTES)
@pytest.mark.parametrize("order", ["sequential", "simultaneous"])
async def test_votes(answers: tuple[str, ...], success: bool, order: Any, programs: LocalSandbox) -> None:
    result = await play(begin(programs, size=5, decision="vote", order=order), PROGRAM, PROGRAM, *answers)
    assert (result.team, result.done, result.success) == (float(success), True, success)
