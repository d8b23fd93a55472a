"""Tasks of reasoning-gym, scored by its own scorers in the sandbox."""

import json
import re
from collections.abc import AsyncIterator
from math import inf, nan
from random import Random
from typing import Any

import pytest

from troupe.envs.math.questions import MathQuestions
from troupe.envs.reasoning_gym import EXAMPLE_SEED, Generator, Puzzle, ReasoningGym
from troupe.envs.testing import check_world
from troupe.experience import Task
from troupe.sandbox import Limits, LocalSandbox

create_dataset = pytest.importorskip("reasoning_gym").create_dataset
IMPORTS = ("sympy", "mpmath", "latex2sympy2_extended", "antlr4", "reasoning_gym")
GENERATORS = ("leg_counting", "word_sorting")


def world(sandbox: LocalSandbox, **settings: Any) -> ReasoningGym:
    def made(split: str, count: int) -> list[Generator]:
        return [Generator(name, split, count) for name in GENERATORS]

    sets: dict[str, Any] = {"train": made("train", 40), "validation": made("validation", 6), "test": made("test", 6)}
    return ReasoningGym(**{"sandbox": sandbox, "horizon": 1, "limits": Limits(cpu_s=2.0), **sets, **settings})


@pytest.fixture
def sandbox() -> LocalSandbox:
    return LocalSandbox(workers=1, imports=IMPORTS)


@pytest.fixture
async def gym(sandbox: LocalSandbox) -> AsyncIterator[ReasoningGym]:
    made = world(sandbox)
    await made.open()
    yield made
    await made.close()


async def success(gym: ReasoningGym, task: Task, answer: str, program: str = "print(1)") -> tuple[bool, float]:
    """Of an answer, and the reward of the program before it."""
    env = gym.fork()
    env.reset(task)
    run = await env.step({"tool": f"```python\n{program}\n```"})
    step = await env.step({"reasoner": f"\\boxed{{{answer}}}"})
    return step.success, run.local["tool"]


async def test_an_answer_is_what_the_scorer_says(gym: ReasoningGym) -> None:
    for task in gym.tasks("test", 12, 0):
        own = task.data["answer"]
        assert await success(gym, task, own, f"print({own!r})") == (True, 1.0)
        right, reward = await success(gym, task, "none of these")
        assert not right and reward == pytest.approx(0.2)
    (sorting,) = [t for t in gym.tasks("test", 12, 0) if t.data["puzzle"][0] == "word_sorting"][:1]
    words = sorted(sorting.data["answer"].split(", "), reverse=True)
    assert not (await success(gym, sorting, ", ".join(words)))[0]


async def test_whatever_is_answered_is_scored(gym: ReasoningGym) -> None:
    for text in ("__import__('os')._exit(0)", "(" * 5000, "1" * 5000, "\ud800", "", "[].__class__"):
        for task in gym.tasks("test", 2, 1):
            assert not (await success(gym, task, text))[0]


@pytest.mark.parametrize("settings", [{}, {"team": "solo"}, {"horizon": 2, "stop": "consensus"}])
@pytest.mark.slow
async def test_the_world_keeps_the_contract(sandbox: LocalSandbox, settings: dict[str, Any]) -> None:
    env = world(sandbox, **settings)
    await env.open()
    await check_world(env)
    await env.close()


def test_examples_are_other_tasks_with_their_answers(sandbox: LocalSandbox) -> None:
    env = world(sandbox, team="solo", examples=2)
    for task in env.tasks("train", 4, 0):
        env.reset(task)
        system, *examples, last = env.observe("solo")
        assert system["role"] == "system" and task.data["question"] in last["content"]
        assert [each["role"] for each in examples] == ["user", "assistant"] * 2
        assert all(task.data["question"] not in each["content"] for each in examples)
        generator, settings, _ = task.data["puzzle"]
        for asked, answered in zip(examples[::2], examples[1::2], strict=True):
            tasks = create_dataset(generator, size=30, seed=EXAMPLE_SEED, **json.loads(settings))
            (answer,) = {t["answer"] for t in tasks if t["question"].strip() in asked["content"]}
            assert answered["content"] == f"\\boxed{{{answer}}}"
    with pytest.raises(ValueError, match=r"env\.examples.*env\.team=solo"):
        world(sandbox, examples=1)


def test_demonstrations_are_right_or_have_the_planted_mistake(sandbox: LocalSandbox) -> None:
    env, rng = world(sandbox, team="solo"), Random(0)
    for task in env.tasks("train", 4, 0):
        env.reset(task)
        answer = task.data["answer"]
        mistake = str(int(answer) + 1) if answer.isdecimal() else answer[1:]
        assert env.demonstration("solo", rng) == f"\\boxed{{{answer}}}"
        assert env.demonstration("solo", rng, skill="flawed") == f"\\boxed{{{mistake}}}"


def test_splits_have_no_task_in_common(sandbox: LocalSandbox) -> None:
    env = world(sandbox)
    items = env.splits.items
    assert all(isinstance(item, Puzzle) for part in items.values() for item in part.values())
    keys = {split: set(part) for split, part in items.items()}
    assert (
        not keys["train"] & keys["test"] and not keys["train"] & keys["validation"] | keys["validation"] & keys["test"]
    )
    assert {item.generator for item in items["test"].values()} == set(GENERATORS)  # type: ignore[attr-defined]
    again = world(sandbox).splits.items["train"]
    assert {key: item.text for key, item in again.items()} == {key: item.text for key, item in items["train"].items()}


ANIMALS: list[Any] = [-1, "x", None, nan, inf, [], {"a": 1}, 1e300, ""]
WRONG: list[tuple[dict[str, Any], str]] = [
    *(({"name": name}, rf"env\.train: reasoning-gym has no generator '{re.escape(str(name))}'")
      for name in ("leg_countin", "", None, 3, ["leg_counting"], "../x", "leg_counting ", "LEG_COUNTING", "{}")),
    *(({"split": split}, rf"split={re.escape(str(split))} is unknown.* Known: train")
      for split in ("tests", "", None, 3, ["train"])),
    *(({"count": count}, "count must be a whole number") for count in (0, -1, 1.5, "3", None, True, nan)),
    ({"count": 1 << 31}, "count=2147483648: a split has 1073741824 seeds"),
    *(({"settings": settings}, "settings must hold keys of the generator") for settings in ("abc", [1], 3)),
    *(({"settings": {"min_animals": value}}, r"env\.train: reasoning-gym's leg_counting refuses .*min_animals")
      for value in ANIMALS),
    *(({"settings": {key: 3}}, rf"env\.train: reasoning-gym's leg_counting refuses .*{key}")
      for key in ("legs", "seed", "size", "self", 3)),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=range(len(WRONG)))
def test_thirty_hostile_settings_of_a_generator_are_named(
    sandbox: LocalSandbox, settings: dict[str, Any], message: str
) -> None:
    assert len(WRONG) >= 30
    with pytest.raises(ValueError, match=message):
        made = Generator(**{"name": "leg_counting", "split": "train", "count": 3, **settings})
        world(sandbox, train=[made]).tasks("train", 1, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"examples": value}, r"env\.examples") for value in (-1, 1.5, "2", None, True)),
        *(({"test": value}, r"env\.test must be a list of data sets") for value in (None, "x", 3, [3], {"a": 1})),
        ({"team": "trio"}, "env.team=trio is unknown"),
    ],
)
def test_hostile_settings_of_the_world_are_named(sandbox: LocalSandbox, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        world(sandbox, **settings).tasks("test", 1, 0)


async def test_a_sandbox_without_the_package_is_named() -> None:
    env = world(LocalSandbox(workers=1, imports=IMPORTS[:4]))
    try:
        with pytest.raises(ValueError, match=r"does not give 1 to its own answer .*env\.sandbox\.imports"):
            await env.open()
    finally:
        await env.close()


def test_a_split_is_one_of_three() -> None:
    with pytest.raises(ValueError, match=r"split=tests is unknown; did you mean test"):
        Generator("leg_counting", "tests", 1)
    assert issubclass(ReasoningGym, MathQuestions)
