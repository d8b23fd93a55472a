"""Turn taking: stages within a turn, agents that act at the same time, the end of an episode."""

from collections.abc import Hashable, Mapping
from random import Random
from typing import Any, get_args

import pytest

from troupe.envs.base import Skill, StepResult
from troupe.envs.execution import Executor
from troupe.envs.testing import check_world
from troupe.envs.tool_calls import ANSWER, READ, ToolFormat
from troupe.envs.turns import TurnTakingWorld, chat
from troupe.experience import Message, Split, Task
from troupe.sandbox import Job, Limits, LocalSandbox


class Relay(TurnTakingWorld):
    """One agent passes a number on, then two must repeat it at the same time."""

    name = "relay"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"stages": [("scout",), ("left", "right")], "horizon": 2, **settings})
        self.number, self.note = "", ""

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        last = {"train": 0, "validation": 1, "test": 2}[split]
        numbers = [str(10 * number + last) for number in Random(seed).sample(range(1000), count)]
        return [Task(f"relay-{number}", split, {"number": number}) for number in numbers]

    def reset(self, task: Task) -> None:
        self._begin()
        self.number, self.note = task.data["number"], ""

    def _prompt(self, agent: str) -> list[Message]:
        return chat(f"{agent} relay", self.number if agent == "scout" else self.note)

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        local = dict.fromkeys(actions, 0.0)
        if "scout" in actions:
            self.note = actions["scout"][:20]
            self._next_stage()
            return StepResult(local, 0.0, False, False)
        success = all(text == self.number for text in actions.values())
        self.note = ""
        self._next_turn(done=success)
        return StepResult(local, float(success), self._done, success)

    def _state(self) -> tuple[Hashable, ...]:
        return (self.number, self.note)

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        return self.number if agent == "scout" else self.note


def begin(**settings: Any) -> Relay:
    world = Relay(**settings)
    world.reset(Task("by-hand", "test", {"number": "7"}))
    return world


async def test_a_turn_taking_world_keeps_the_contract() -> None:
    await check_world(Relay(), solved=1.0)


async def test_stages_follow_each_other_until_the_horizon() -> None:
    world = begin()
    assert world.agents == ("scout", "left", "right") and world.stages == (("scout",), ("left", "right"))
    for turn in range(2):
        assert (world.turn, world.next_agents()) == (turn, ("scout",))
        await world.step({"scout": ""})
        assert (world.turn, world.next_agents()) == (turn, ("left", "right"))
        result = await world.step({"right": "", "left": ""})
    assert result.done and (world.turn, world.next_agents()) == (2, ())


async def test_a_turn_may_end_the_episode() -> None:
    world = begin(horizon=9)
    await world.step({"scout": "7"})
    assert (await world.step({"left": "7", "right": "7"})).success and world.next_agents() == ()


@pytest.mark.parametrize("actions", [{}, {"left": ""}, {"scout": "", "left": ""}, {"nobody": ""}])
async def test_only_the_acting_agents_may_speak(actions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="relay expects a message of scout, got one of"):
        await begin().step(actions)
    with pytest.raises(ValueError, match="over or not begun"):
        await Relay().step(actions)


def test_unknown_agents_and_wrong_horizons_are_refused() -> None:
    with pytest.raises(ValueError, match="relay has the agents scout, left, right, not nobody"):
        begin().observe("nobody")
    with pytest.raises(ValueError, match=r"env\.horizon must be at least 1, got 0"):
        Relay(horizon=0)
    with pytest.raises(ValueError, match=r"env\.horizon must be at most 100,000, got 9223372036854775808"):
        Relay(horizon=1 << 63)


async def test_a_world_opens_and_closes_its_sandbox() -> None:
    assert await Relay().open() == {}
    await Relay().close()
    execution = Executor(LocalSandbox(workers=1), Limits())
    world = Relay(execution=execution)
    assert (await world.open())["unsafe"] is False
    await world.fork().close()
    with pytest.raises(RuntimeError, match="closed"):
        await execution.result(Job("1"))


@pytest.mark.parametrize("form", get_args(ToolFormat))
async def test_a_world_has_a_function_without_a_line_for_it(form: ToolFormat) -> None:
    called, plain = begin(tools=form), begin()
    offer = called.tools("scout")
    assert offer is not None and offer.tools == (ANSWER,) and plain.tools("scout") is None
    (system, user), (short, same) = called.observe("scout"), plain.observe("scout")
    assert system["content"] == f"{short['content']}\n\n{offer.request}" and user == same
    await called.step({"scout": offer.write("answer", text="7")})
    await plain.step({"scout": "7"})
    assert called.note == plain.note == "7" and called.tool_result("scout") == READ
    await check_world(called, oracle=lambda world, agent, rng: offer.say(world.demonstration(agent, rng)))


def test_a_request_where_there_is_no_system_message(monkeypatch: pytest.MonkeyPatch) -> None:
    world = begin(tools="hermes")
    monkeypatch.setattr(world, "_prompt", lambda agent: [{"role": "user", "content": "7"}])
    system, user = world.observe("scout")
    assert system["role"] == "system" and system["content"].startswith("Call the function answer once")
    assert user == {"role": "user", "content": "7"}
