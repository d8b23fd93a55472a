"""Tool calls in every world: a call does what its text does, prompts ask for it, a malformed one is silence."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, get_args

import pytest

from troupe.envs.base import StepResult
from troupe.envs.history import WithHistory
from troupe.envs.testing import check_world
from troupe.envs.tool_calls import UNREADABLE, ToolFormat, ToolOffer
from troupe.envs.turns import TurnTakingWorld
from troupe.experience import Split, Task
from troupe.sandbox import LocalSandbox

from ..called_worlds import CASES, Case

FORMATS = get_args(ToolFormat)
COUNTS = {"tool_calls", "malformed_calls"}
GARBAGE_BODIES = 300


def offer_of(world: TurnTakingWorld, agent: str) -> ToolOffer:
    offer = world.tools(agent)
    assert offer is not None
    return offer


def effect(result: StepResult) -> StepResult:
    """``result`` without the numbers of calls."""
    return replace(result, info={key: value for key, value in result.info.items() if key not in COUNTS})


def forget(world: TurnTakingWorld) -> TurnTakingWorld:
    """A copy that does not know which messages were calls."""
    copy = world.fork()
    copy._calls = {}
    return copy


def names_of(offer: ToolOffer) -> tuple[str, ...]:
    return tuple(tool.name for tool in offer.tools)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_call_does_what_its_text_does(case: Case, form: ToolFormat, reading: LocalSandbox) -> None:
    called, written = case.begin(reading, form), case.begin(reading, None)
    rng, offered, steps = Random(0), dict[str, tuple[str, ...]](), 0
    while acting := called.next_agents():
        texts = {agent: case.say(written, agent, rng) for agent in acting}
        for agent in acting:
            offered.setdefault(agent, names_of(offer_of(called, agent)))
            assert written.tools(agent) is None
            assert called.observe(agent)[0]["content"].endswith(offer_of(called, agent).request)
        messages = {agent: offer_of(called, agent).say(text) for agent, text in texts.items()}
        assert all(offer_of(called, agent).calls(message) for agent, message in messages.items())
        result, expected = await called.step(messages), await written.step(texts)
        assert effect(result) == expected and COUNTS.isdisjoint(expected.info)
        assert (result.info["tool_calls"], result.info["malformed_calls"]) == (1, 0)
        assert forget(called).state_key() == written.state_key() and called.next_agents() == written.next_agents()
        for agent in acting:
            assert called.tool_result(agent) not in (None, UNREADABLE) and written.tool_result(agent) is None
        steps += 1
    assert steps and offered.items() <= case.functions.items()


ASKED = " once, with what you are asked for."
PLAIN_FORMS = ("in a fenced block", "```python", "<search>", "<answer>", "<ask>", "\\boxed", "[again]", "end with one")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_prompts_ask_for_no_other_form(case: Case, form: ToolFormat, reading: LocalSandbox) -> None:
    called, written, rng = case.begin(reading, form), case.begin(reading, None), Random(0)
    while acting := called.next_agents():
        for agent in acting:
            prompt, unasked = called.observe(agent), written.observe(agent)
            shown = prompt[0]["content"] + (prompt[-1]["content"] if called.turn == 0 else "")  # later, old programs
            assert not [plain for plain in PLAIN_FORMS if plain in shown]
            assert form == "hermes" or not re.search("think|reason step", shown.lower())
            assert ASKED in prompt[0]["content"] and ASKED not in unasked[0]["content"]
            for message in prompt:  # worked examples
                if message["role"] == "assistant":
                    assert offer_of(called, agent).read(message["content"]) not in (None, message["content"])
        texts = {agent: case.say(written, agent, rng) for agent in acting}
        await called.step(texts)
        await written.step(texts)


def garbage(offer: ToolOffer, text: str, rng: Random) -> str:
    """A call of ``text``, damaged, or of something else."""
    whole = offer.say(text)
    at, other = rng.randrange(len(whole)), rng.randrange(len(whole))
    values: list[Any] = [None, 7, 1e308, True, [], {}, "", "\0", "\ud800", "</tool_call>", "9" * 500, {"text": "a"}]
    tool = rng.choice(offer.tools)
    arguments = {name: rng.choice(values) for name in [*tool.parameters, *rng.choice([[], ["other"]])]}
    return rng.choice(
        [
            whole[:at],
            whole[:at] + whole[at + 1 :],
            whole[:at] + rng.choice('{}[]":,\\\0é') + whole[at:],
            whole[:at] + whole[other:],
            whole * 2,
            whole.replace(tool.name, rng.choice(["nothing", "", tool.name.upper()])),
            offer.write(tool.name, **arguments),
            offer.write(rng.choice([*(each.name for each in offer.tools), "eval"])),
            offer.write(tool.name, text=text).replace(json.dumps(text), text),
        ]
    )


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_malformed_calls_are_silence(case: Case, form: ToolFormat, reading: LocalSandbox) -> None:
    world, rng, malformed = case.begin(reading, form), Random(0), 0
    steps = [world.fork()]
    while world.next_agents() and len(steps) < len(world.stages):
        await world.step({agent: case.say(world, agent, rng) for agent in world.next_agents()})
        steps.append(world.fork())
    for start in (each for each in steps if each.next_agents()):
        silence = dict.fromkeys(start.next_agents(), "")
        quiet = start.fork()
        nothing = await quiet.step(silence)
        for number in range(GARBAGE_BODIES // len(steps)):
            agent = rng.choice(start.next_agents())
            offer, fork = offer_of(start, agent), start.fork()
            message = garbage(offer, case.say(start, agent, rng), rng)
            text = offer.read(message)
            if text is not None:  # a whole call, or none: what its text does
                if number % 10 == 0:
                    assert await same_effect(start, silence | {agent: message}, silence | {agent: text})
                continue
            malformed += 1
            result = await fork.step(silence | {agent: message})
            assert effect(result) == effect(nothing) and result.info["malformed_calls"] == 1 / len(silence)
            assert fork.tool_result(agent) == UNREADABLE
            assert forget(fork).state_key() == forget(quiet).state_key()
    assert malformed > GARBAGE_BODIES // 4


async def same_effect(world: TurnTakingWorld, first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Whether two steps of ``world`` give the same; ``second`` in plain text."""
    here, there = world.fork(), world.fork()
    there.tool_format = None
    return effect(await here.step(first)) == await there.step(second) and (
        forget(here).state_key() == forget(there).state_key()
    )


POINTS = {"code": (-1.0, 1.0), "writing": (0.0, 3.0), "code_collab": (0.0, 4.0)}
"""Bounds of the team reward by world, where they are not 0 and 1."""


@pytest.mark.parametrize(
    ("case", "form"),
    [
        pytest.param(
            case, FORMATS[i % len(FORMATS)], id=name, marks=() if "_" not in name or i % 6 == 0 else pytest.mark.slow
        )
        for i, (name, case) in enumerate(CASES.items())
    ],
)
async def test_the_contract_with_calls(
    case: Case, form: ToolFormat, reading: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def oracle(world: Any, agent: str, rng: Random) -> str:
        return offer_of(world, agent).say(case.say(world, agent, rng))

    def tasks(split: Split, count: int, seed: int) -> list[Task]:
        assert case.task is not None
        return [replace(case.task, task_id=f"{seed}-{number}", split=split) for number in range(count)]

    world = case.make(reading, tools=form)
    if case.task is not None:
        monkeypatch.setattr(world, "tasks", tasks)
    solved = 0.0 if case.messages else 0.9
    team = POINTS.get(world.name, (0.0, 1.0))
    await check_world(world, splits=("train",), tasks=2, team=team, oracle=oracle, solved=solved)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_memory_shows_the_result(case: Case, reading: LocalSandbox) -> None:
    begun = case.begin(reading, "hermes")
    world, rng = WithHistory(begun), Random(0)
    (agent, *_) = acting = world.next_agents()
    messages = {each: offer_of(begun, each).say(case.say(begun, each, rng)) for each in acting}
    await world.step(messages)
    past = [message for message in world.observe(agent) if message["content"] == messages[agent]]
    results = [message for message in world.observe(agent) if message["role"] == "tool"]
    if begun.horizon > 1 or len(begun.stages) > 1:
        assert len(past) == len(results) == 1 and results[0]["content"] == begun.tool_result(agent)
