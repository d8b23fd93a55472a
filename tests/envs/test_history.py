"""Memory: what an agent sees again, what it does not, and that states differ where agents remember different things."""

import copy
from collections.abc import Hashable, Mapping
from typing import Self

import pytest

from troupe.envs.base import StepResult, TeamEnv
from troupe.envs.couplet.world import Couplet
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.history import WithHistory, without_oldest
from troupe.envs.mixed import Mixed
from troupe.envs.signalling.world import Signalling
from troupe.envs.testing import check_world
from troupe.experience import Message, Split, Task

TASK = Task("talk", "test", {})


class Talk(TeamEnv):
    """Two agents in turn, for four turns; each sees the turn, and a tool tells the first how long its message was."""

    agents, horizon = ("ask", "answer"), 4

    def __init__(self) -> None:
        self.turn, self.acting, self.length = 0, 0, 0

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return [TASK][:count]

    def reset(self, task: Task) -> None:
        self.turn, self.acting, self.length = 0, 0, 0

    def next_agents(self) -> tuple[str, ...]:
        return (self.agents[self.acting],) if self.turn < self.horizon else ()

    def observe(self, agent: str) -> list[Message]:
        system = {"role": "system", "content": f"{agent}, turn {self.turn}"}
        return [system, {"role": "user", "content": f"turn {self.turn}"}]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        if set(actions) != set(self.next_agents()):
            raise ValueError("others act")
        ((agent, text),) = actions.items()
        self.acting, self.length = 1 - self.acting, len(text)
        self.turn += agent == "answer"
        return StepResult({agent: 0.0}, 0.0, self.turn == self.horizon, False)

    def tool_result(self, agent: str) -> str | None:
        return f"{self.length} signs" if agent == "ask" else None

    def fork(self) -> Self:
        return copy.copy(self)

    def state_key(self) -> Hashable:
        return self.turn, self.acting, self.length

    def anchor_key(self, agent: str) -> Hashable:
        return self.acting


async def talk(world: TeamEnv, *texts: str) -> None:
    world.reset(TASK)
    for text in texts:
        await world.step({world.next_agents()[0]: text})


def lines(messages: list[Message]) -> list[str]:
    return [f"{message['role'][0]}: {message['content']}" for message in messages]


async def test_the_prompt_is_the_chat_so_far() -> None:
    world = WithHistory(Talk())
    await talk(world)
    assert lines(world.observe("ask")) == ["s: ask, turn 0", "u: turn 0"]
    await talk(world, "one", "two!", "three", "four")
    assert lines(world.observe("ask")) == [
        "s: ask, turn 2",  # the present one: earlier system messages are not repeated
        *("u: turn 0", "a: one", "t: 3 signs"),
        *("u: turn 1", "a: three", "t: 5 signs"),
        "u: turn 2",
    ]
    answer = ["s: answer, turn 2", "u: turn 0", "a: two!", "u: turn 1", "a: four", "u: turn 2"]
    assert lines(world.observe("answer")) == answer  # nothing of what the other saw and said


async def test_it_reaches_back_as_many_turns_as_it_is_given() -> None:
    world = WithHistory(Talk(), 1)
    await talk(world, "one", "two", "three", "four", "five")
    assert lines(world.observe("answer")) == ["s: answer, turn 2", "u: turn 1", "a: four", "u: turn 2"]
    # `ask` has spoken at this turn already; its message of the turn before is remembered still.
    assert [line[3:] for line in lines(world.observe("ask")) if line[0] == "a"] == ["three", "five"]


@pytest.mark.parametrize("turns", [0, -1, False, 1.5, "all"])
def test_other_lengths_are_refused(turns: object) -> None:
    with pytest.raises(ValueError, match=r"env\.history must be true, false, or a number of turns"):
        WithHistory(Talk(), turns)  # type: ignore[arg-type]


async def test_forks_remember_apart() -> None:
    world = WithHistory(Talk())
    await talk(world, "one")
    fork = world.fork()
    await fork.step({"answer": "left"})
    await world.step({"answer": "right"})
    assert lines(fork.observe("answer"))[2] == "a: left" and lines(world.observe("answer"))[2] == "a: right"


async def test_states_and_anchors_go_by_what_agents_remember() -> None:
    left, right = WithHistory(Talk()), WithHistory(Talk())
    await talk(left, "one", "two")
    await talk(right, "one", "owt")
    assert left.world.state_key() == right.world.state_key() and left.state_key() != right.state_key()
    assert left.anchor_key("ask") == right.anchor_key("ask")  # it remembers the same
    assert left.world.anchor_key("answer") == right.world.anchor_key("answer")
    assert left.anchor_key("answer") != right.anchor_key("answer")
    assert WithHistory(Couplet()).anchor_key("first") is None


@pytest.mark.parametrize(
    "world",
    [
        WithHistory(PlanPath()),
        WithHistory(Sokoban(), 2),
        WithHistory(Signalling()),
        WithHistory(Mixed(worlds={"a": PlanPath(), "b": Sokoban()})),
    ],
)
async def test_the_contract_holds_with_a_memory(world: WithHistory) -> None:
    await check_world(world, tasks=1, solved=0.0)
    assert world.has_demonstrations and world.agents == world.world.agents and world.stages == world.world.stages


async def test_what_is_forgotten_first() -> None:
    world = WithHistory(Talk())
    await talk(world, "one", "two", "three", "four")
    kept = [lines(world.observe("ask"))]
    messages: list[Message] | None = world.observe("ask")
    while (messages := without_oldest(messages or [])) is not None:
        kept.append(lines(messages))
    assert kept[1:] == [
        ["s: ask, turn 2", "u: turn 1", "a: three", "t: 5 signs", "u: turn 2"],
        ["s: ask, turn 2", "u: turn 2"],
    ]
    assert without_oldest([{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]) is None
