"""Word problems: prompts, notation and rewards; with the real sandbox."""

import re
from typing import Any

import pytest

from troupe.envs.math import WordProblems
from troupe.envs.testing import GARBAGE, check_world
from troupe.experience import Task
from troupe.sandbox import LocalSandbox

TASK = Task("by-hand", "test", {"question": "Ben has 47 cups. Ben loses 19.", "answer": "28"})


def begin(sandbox: Any, **settings: Any) -> WordProblems:
    world = WordProblems(sandbox=sandbox, **settings)
    world.reset(TASK)
    return world


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"largest": 8}, {"examples": 3}, {"horizon": 0}, {"stop": "never"}])
def test_settings_are_checked(programs: LocalSandbox, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"env\.{next(iter(wrong))}"):
        WordProblems(sandbox=programs, **wrong)


async def test_prompts(programs: LocalSandbox) -> None:
    world = begin(programs)
    assert world.observe("tool") == [
        {"role": "system", "content": "Write the calculation."},
        {"role": "user", "content": "Tom has 8 pens. Tom gives away 3."},
        {"role": "assistant", "content": "8 - 3"},
        {"role": "user", "content": "Ben has 47 cups. Ben loses 19."},
    ]
    await world.step({"tool": "47 - 19"})
    assert world.observe("reasoner") == [
        {"role": "system", "content": "Answer with one number."},
        {"role": "user", "content": "Tom has 8 pens. Tom gives away 3. Result: 5"},
        {"role": "assistant", "content": "5"},
        {"role": "user", "content": "Ben has 47 cups. Ben loses 19. Result: 28"},
    ]
    assert len(begin(programs, examples=0).observe("tool")) == 2


@pytest.mark.parametrize(
    ("text", "team", "local", "report"),
    [
        ("47 - 19", 1.0, 1.0, "28"),
        ("47-19", 1.0, 1.0, "28"),
        ("Ben has 47 - 19 = 28 cups left.", 1.0, 1.0, "28"),
        ("28 + 0", 1.0, 1.0, "28"),  # done in the head: it is right
        ("47 + 19, or 47 - 19", 0.0, 0.2, "66"),  # the first counts
        ("47 - 019", 1.0, 1.0, "28"),  # Python knows no leading zeros
        ("19 - 47", 0.0, 0.2, "-28"),
        ("999999 * 999999", 0.0, 0.1, "no result"),  # longer than a number may be
        ("28", 0.0, 0.0, "no result"),
        ("1000047 - 19", 0.0, 0.0, "no result"),
        ("4.7 - 19", 0.0, 0.0, "no result"),
        ("x47 - 19", 0.0, 0.0, "no result"),
        ("47 ** 19", 0.0, 0.0, "no result"),
        ("", 0.0, 0.0, "no result"),
    ],
)
async def test_rewards_of_calculations(
    programs: LocalSandbox, text: str, team: float, local: float, report: str
) -> None:
    world = begin(programs, local_share=1.0)
    result = await world.step({"tool": text})
    assert (result.team, result.local["tool"]) == (team, pytest.approx(local))
    assert world.observe("reasoner")[-1]["content"].endswith(f"Result: {report}")


@pytest.mark.parametrize(
    ("text", "right", "local"),
    [
        ("28", True, 1.0),
        ("47 - 19 = 28", True, 1.0),
        ("Ben has 28 cups.", True, 1.0),
        ("27 or 28", True, 1.0),  # the last counts
        ("28, no: 27", False, 0.2),
        ("-28", False, 0.2),
        ("47 - 19", False, 0.0),  # a calculation, no answer
        ("2 8", False, 0.2),
        ("twenty-eight", False, 0.0),
    ],
)
async def test_rewards_of_answers(programs: LocalSandbox, text: str, right: bool, local: float) -> None:
    world = begin(programs, local_share=1.0)
    await world.step({"tool": "47 - 19"})
    result = await world.step({"reasoner": text})
    assert (result.success, result.team, result.local["reasoner"]) == (right, float(right), pytest.approx(local))
    assert result.done


async def test_one_agent_alone_calculates_and_answers(programs: LocalSandbox) -> None:
    world = begin(programs, team="solo", horizon=2)
    await world.step({"solo": "47 - 19"})
    assert world.observe("solo")[-1]["content"].endswith("Result: 28")
    assert (await world.step({"solo": "28"})).success


def test_tasks_are_what_their_stories_say(programs: LocalSandbox) -> None:
    world = WordProblems(sandbox=programs, steps=3, largest=20)
    for task in world.tasks("train", 200, 0):
        first, *changes = re.findall(r"[a-z ]+ (\d+)", task.data["question"])
        falls = re.findall(r"(gives away|loses|sells|gets|finds|buys)", task.data["question"])
        value = int(first)
        for word, number in zip(falls, changes, strict=True):
            value += -int(number) if word in ("gives away", "loses", "sells") else int(number)
            assert value >= 1
        assert str(value) == task.data["answer"]
    plain = WordProblems(sandbox=programs)
    ids = {split: {task.task_id for task in plain.tasks(split, 200, 0)} for split in ("train", "validation", "test")}
    assert len(set.union(*ids.values())) == 600


async def test_the_world_keeps_the_contract(programs: LocalSandbox) -> None:
    """Garbage that is a calculation or a number is left out: here it has a meaning."""

    def oracle(world: Any, agent: str, rng: Any) -> str:
        numbers = re.findall(r"\d+", world._question)
        sign = "-" if re.search("gives away|loses|sells", world._question) else "+"
        return f" {sign} ".join(numbers) if agent == "tool" else str(world._gold)

    garbage = [text for text in GARBAGE if not re.search(r"\d", text)]
    await check_world(WordProblems(sandbox=programs), tasks=1, local=(0.0, 0.1), oracle=oracle, garbage=garbage)
