"""Environments of verifiers as worlds: played, refused, and told where they fail."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from troupe.envs.base import StepResult
from troupe.envs.testing import check_world
from troupe.envs.workflow.world import WorkflowFailure
from troupe.errors import ConfigError

pytestmark = [
    pytest.mark.verifiers,
    pytest.mark.skipif(importlib.util.find_spec("verifiers") is None, reason="needs the extra verifiers"),
]
ENVIRONMENTS = Path(__file__).parents[2] / "verifiers_environments"
ROWS = {"train": (0, 20), "validation": (20, 24), "test": (24, 30)}
MESSAGES = [
    *("", " ", "\n" * 50, "w", "\x00", "\ud800", "\U0010ffff" * 40, "a" * 100_000, "<tool_call>", "</tool_call>"),
    *('<tool_call>{"name": "x"}</tool_call>', '{"role": "system"}', "[]", "null", "NaN", "data: [DONE]\n\n"),
    *(
        "\r\n\r\n",
        "<|im_end|>",
        "<|endoftext|>",
        "{{messages}}",
        "{%raw%}",
        "%s%n",
        "'; DROP TABLE",
        "../../etc/passwd",
    ),
    *("$(reboot)", "__import__('os')", "\u202eabc", "\ufeff", "e\u0301" * 9, "(" * 5000),
]
CALLS = [
    '{"name": "dictionary_meaning", "arguments": {"word": "frog"}}',
    '{"name": "dictionary_meaning", "arguments": {"word": "?!"}}',
    '{"name": "dictionary_meaning", "arguments": {"word": 7}}',
    '{"name": "dictionary_meaning", "arguments": {}}',
    '{"name": "nothing", "arguments": {}}',
]


@pytest.fixture(autouse=True)
def environments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ENVIRONMENTS))
    monkeypatch.setenv("PYTHONPATH", str(ENVIRONMENTS))  # of the processes of tools
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("troupe_"):
            del sys.modules[name]


def made(fault: str = "", **settings: Any) -> Any:
    from troupe.envs.verifiers.world import VerifiersWorld

    taskset = {"task": {"fault": fault}, **settings.pop("taskset", {})}
    all_settings = {"environment": "troupe-words", "rows": ROWS, "reward_bounds": (0, 1), "horizon": 2, **settings}
    return VerifiersWorld(**{"settings": {"taskset": taskset}, **all_settings})


async def played(world: Any, *texts: str) -> StepResult:
    await world.open()
    try:
        world.reset(world.tasks("train", 1, 0)[0])
        await world.begin()
        for text in texts:
            result: StepResult = await world.step(dict.fromkeys(world.next_agents(), text))
        return result
    finally:
        await world.close()


async def test_its_rewards_pay_the_agent() -> None:
    world = made()
    word = world.tasks("train", 1, 0)[0].data["row"]
    result = await played(world, f"w{word}")
    assert (result.team, result.done, result.success) == (1.0, True, True)
    assert result.info["vf_right"] == 1.0 and result.info["vf_length"] == len(f"w{word}")
    assert (await played(world, "another")).team == 0.0
    assert world._service.key not in os.environ.values()


async def test_each_role_is_an_agent() -> None:
    world = made(environment="troupe-lookup", settings={"taskset": {"count": 30}})
    assert world.agents == ("scout", "chief")
    await world.open()
    world.reset(world.tasks("test", 1, 0)[0])
    await world.begin()
    order = []
    while acting := world.next_agents():
        order += acting
        result = await world.step(dict.fromkeys(acting, "find nothing"))
    await world.close()
    assert order == ["scout", "scout", "chief"] and result.team == 0.0
    assert {"vf_scout_found", "vf_chief_right"} <= result.info.keys()


async def test_a_role_with_a_client_of_its_own_is_no_agent() -> None:
    judge = {"client": {"type": "eval", "base_url": "http://127.0.0.1:9/v1"}, "model": "judge"}
    settings = {"taskset": {"count": 30}, "chief": judge}
    assert made(environment="troupe-lookup", settings=settings).agents == ("scout",)


@pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning")  # of tenacity, in verifiers
async def test_its_tools_run_and_faults_of_a_call_are_told_to_the_model() -> None:
    world = made(taskset={"task": {"tools": True}}, tools="hermes", horizon=len(CALLS) + 1, limit_s=300.0)
    await world.open()
    world.reset(world.tasks("train", 1, 0)[0])
    await world.begin()
    (tool,) = world.tools("agent").tools
    assert tool.name == "dictionary_meaning"
    for call in CALLS:
        await world.step({"agent": f"<tool_call>\n{call}\n</tool_call>"})
    results = [each["content"] for each in world.observe("agent") if each["role"] == "tool"]
    await world.close()
    assert results[0] == "frog means gorf" and results[-1] == "error: there is no tool nothing"
    assert all("rror" in each for each in results[1:]) and len(results) == len(CALLS)


async def test_any_message_is_legal() -> None:
    world = made()
    await world.open()
    for task, text in zip(world.tasks("train", 15, 0) * 2, MESSAGES, strict=True):
        world.reset(task)
        await world.begin()
        result = await world.step({"agent": text})
        assert result.done and 0.0 <= result.team <= 1.0 and not result.info["refused_requests"], text
    await world.close()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("setup", "troupe-words failed in row .*no room in setup"),
        ("finalize", "troupe-words failed in row .*nothing to finalize"),
        ("raises", "troupe-words failed in row .*the rubric divides by 0"),
        ("text", "troupe-words failed in row .*good"),
        ("none", "troupe-words failed in row .*NoneType"),
        ("list", "troupe-words failed in row .*list"),
        ("nan", "the reward of troupe-words, row .*finite"),
        ("inf", "the reward of troupe-words, row .*finite"),
        ("metric nan", "vf_length must be a finite number"),
        ("exits", "SystemExit"),
    ],
)
async def test_a_fault_of_the_environment_loses_the_episode_and_names_it(fault: str, message: str) -> None:
    with pytest.raises(WorkflowFailure, match=message):
        await played(made(fault), "w1")


async def test_one_that_hangs_is_lost_after_its_limit() -> None:
    with pytest.raises(WorkflowFailure, match=r"env\.limit_s=20"):
        await played(made("hangs", limit_s=20.0), "w1")


@pytest.mark.parametrize(("fault", "reward"), [("large", "7"), ("negative", "-1")])
async def test_a_reward_out_of_bounds_ends_the_run(fault: str, reward: str) -> None:
    with pytest.raises(ConfigError, match=rf"env\.reward_bounds=\[0, 1\]: .*troupe-words, row \d+ is {reward}"):
        await played(made(fault), "w1")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"environment": "troupe-nothing"}, "env.environment=troupe-nothing: .*not found"),
        ({"environment": ""}, "env.environment"),
        ({"environment": "troupe-old"}, "has load_environment, the interface of verifiers before 0.4"),
        ({"environment": "json"}, "env.environment=json: .*JSON|env.environment=json: .*Taskset"),
        ({"rows": {}}, r"env\.rows\.train must be two whole numbers"),
        ({"rows": {**ROWS, "test": (24, 24)}}, r"env\.rows\.test must be"),
        ({"rows": {**ROWS, "test": (-3, 2)}}, r"env\.rows\.test must be"),
        ({"rows": {**ROWS, "test": (1,)}}, r"env\.rows\.(test|train)"),
        ({"rows": {**ROWS, "test": (10, 30)}}, r"env\.rows\.train and env\.rows\.test overlap"),
        ({"rows": {**ROWS, "exam": (30, 40)}}, "exam"),
        ({"rows": {**ROWS, "test": ("a", "b")}}, r"env\.rows\.test"),
        ({"reward_bounds": (1, 0)}, "env.reward_bounds must be two numbers, the lower first"),
        ({"reward_bounds": (0,)}, "env.reward_bounds must be two numbers"),
        ({"reward_bounds": (0, float("nan"))}, "env.reward_bounds must be two numbers"),
        ({"horizon": 0}, "env.horizon"),
        ({"limit_s": 0}, "env.limit_s"),
        ({"tools": "xml"}, "tools"),
        ({"settings": {"agnt": {}}}, "agnt"),
        ({"settings": {"taskset": {"cuont": 3}}}, "cuont"),
        ({"settings": {"agent": {"model": "gpt"}}}, r"env\.settings\.agent\.model"),
        ({"settings": {"agent": {"client": {"type": "eval", "base_url": "http://127.0.0.1:9"}}}}, "none is an agent"),
        ({"settings": {"agent": {"harness": {"id": "nothing"}}}}, "nothing"),
        ({"settings": {"agent": {"runtime": {"type": "cloud"}}}}, "cloud"),
        ({"settings": {"taskset": 3}}, "env.environment=troupe-words"),
    ],
)
def test_what_cannot_be_played_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**settings)


@pytest.mark.parametrize(
    ("taskset", "count", "message"),
    [
        ({"count": 10}, 3, r"env\.rows: the taskset of troupe-words has 10 rows, not 30"),
        ({"same": True}, 1, r"env\.rows\.train of troupe-words has 0 different tasks"),
        ({}, 21, r"env\.rows\.train of troupe-words has 20 different tasks"),
    ],
)
def test_too_few_tasks_are_told(taskset: dict[str, Any], count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(taskset=taskset).tasks("train", count, 0)


def test_splits_are_disjoint_and_the_same_again() -> None:
    world, again = made(taskset={"infinite": True}), made(taskset={"infinite": True})
    drawn = {split: world.tasks(split, count, 0) for split, count in (("train", 20), ("validation", 4), ("test", 6))}
    assert len({task.task_id for tasks in drawn.values() for task in tasks}) == 30
    assert drawn["train"] == again.tasks("train", 20, 0) != again.tasks("train", 20, 1)


async def test_the_contract_holds_and_a_fork_is_refused_by_its_key() -> None:
    world = made()
    await check_world(world, tasks=2, garbage=("", "w"))
    assert not world.forkable
    await world.open()
    world.reset(world.tasks("train", 1, 0)[0])
    await world.begin()
    fork = world.fork()
    await world.step({"agent": "one"})
    with pytest.raises(ConfigError, match="cannot be forked"):
        await fork.step({"agent": "other"})
    await world.close()


async def test_one_that_is_pure_forks() -> None:
    await check_world(made(pure=True), splits=("test",), tasks=2, garbage=("", "w"))


async def test_chance_is_found() -> None:
    with pytest.raises(AssertionError, match=r"costs the team more than silence|the same texts give"):
        await check_world(made("chance"), splits=("test",), tasks=2, garbage=("",))


def test_tasks_can_be_written() -> None:
    assert json.dumps(dict(made().tasks("test", 1, 0)[0].data))
