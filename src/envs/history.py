"""Memory: an agent sees its earlier turns of the episode again, in any world."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from ..experience import Message, Task
from .base import Delegating, StepResult, TeamEnv, of_world

Frozen = tuple[tuple[tuple[str, str], ...], ...]
"""Messages that can be hashed."""


@dataclass(frozen=True)
class PastMessage:
    """What ``agent`` saw and said at ``turn``, and the result of the tool that it called, if any."""

    turn: int
    agent: str
    seen: Frozen
    said: str
    result: str | None


class WithHistory(Delegating):
    """``world``, whose agents see what they saw and said in the last ``turns`` turns of the episode (True: in all).

    An agent's prompt is a chat: the system messages of its observation now; then, for each of its earlier messages,
    the observation to which it was the answer (without system messages), as the user's, the message itself, as the
    assistant's, and the result of a tool call, as the tool's; then its observation now.  It never sees what another
    agent saw or said but by the world itself.  Rewards, tasks and rules are the world's.

    Two states differ where agents remember different things, and an agent's anchors where it does.
    """

    stages = of_world("stages")
    begins_at_reset = of_world("begins_at_reset")
    has_demonstrations = of_world("has_demonstrations")
    tasks = of_world("tasks")
    task_count = of_world("task_count")
    open = of_world("open")
    close = of_world("close")

    def __init__(self, world: TeamEnv, turns: bool | int = True) -> None:
        if turns is not True and (isinstance(turns, bool) or not isinstance(turns, int) or turns < 1):
            raise ValueError(f"env.history must be true, false, or a number of turns of at least 1, got {turns!r}")
        self.world, self.agents, self.horizon, self.forkable = world, world.agents, world.horizon, world.forkable
        self.turns = world.horizon if turns is True else turns
        self._past: tuple[PastMessage, ...] = ()

    # ---- with history ---------------------------------------------------------------------------------------------

    def reset(self, task: Task) -> None:
        self.world.reset(task)
        self._past = ()

    def observe(self, agent: str) -> list[Message]:
        now = list(self.world.observe(agent))
        chat = [message for message in now if message["role"] == "system"]
        for past in self._past:
            if past.agent == agent:
                chat += [*(dict(message) for message in past.seen), {"role": "assistant", "content": past.said}]
                chat += [] if past.result is None else [{"role": "tool", "content": past.result}]
        return chat + [message for message in now if message["role"] != "system"]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        turn, seen = self.turn, {}
        if set(actions) == set(self.next_agents()):  # else the world refuses
            seen = {agent: _without_system(self.world.observe(agent)) for agent in actions}
        result = await self.world.step(actions)
        latest = tuple(
            PastMessage(turn, agent, seen[agent], text, self.world.tool_result(agent))
            for agent, text in actions.items()
        )
        self._past = tuple(past for past in (*self._past, *latest) if past.turn >= self.turn - self.turns)
        return result

    def state_key(self) -> Hashable:
        return self.world.state_key(), self._past

    def anchor_key(self, agent: str) -> Hashable | None:
        key = self.world.anchor_key(agent)
        return None if key is None else (key, tuple(past for past in self._past if past.agent == agent))


def _without_system(messages: Sequence[Message]) -> Frozen:
    return tuple(tuple(message.items()) for message in messages if message["role"] != "system")


def without_oldest(messages: Sequence[Message]) -> list[Message] | None:
    """A prompt without the oldest of its earlier turns: the messages up to the first of the assistant, and the results
    of its tools; None where there is none.  System messages, and those after the assistant's last one, stay.
    """
    start = next((i for i, each in enumerate(messages) if each["role"] != "system"), len(messages))
    answers = [i for i, each in enumerate(messages) if each["role"] == "assistant"]
    if not answers:
        return None
    end = answers[0] + 1
    while end < len(messages) and messages[end]["role"] == "tool":
        end += 1
    return [*messages[:start], *messages[end:]] if end < len(messages) else None
