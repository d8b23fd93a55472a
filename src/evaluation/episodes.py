"""Episodes with fixed policies: one actor per agent, one episode per task.

Success is one episode from the start state, at most T turns, on held-out tasks.  ``EchoActor``
replaces an agent to measure what it contributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..envs.base import TeamEnv
from ..errors import whole_characters
from ..experience import Failure, FaultKind, Message, Task
from ..rollout.playing import Answer, Step, drawn, gather, or_failure, play_on, prompt_of, start_env
from ..rollout.policy_client import PolicyClient
from ..runs.faults import DEFAULT_FAULTS, FaultSettings

Earlier = Mapping[str, Sequence[Answer]]
"""The messages of an episode so far, by agent, the oldest first; an agent without any may be missing."""


def with_messages(earlier: Earlier, messages: Mapping[str, Answer]) -> Earlier:
    """``earlier`` and the ``messages`` of one step after them."""
    return {**earlier, **{agent: (*earlier.get(agent, ()), message) for agent, message in messages.items()}}


Picture = tuple[str, ...] | dict[str, str]
"""Rows of characters, or of a world that has none what :func:`..rollout.playing.drawn` gives."""

DRAWN = 20
"""The episodes of an evaluation that have drawings, the first: one can have 64 kB per turn."""


class Actor(Protocol):
    """Writes the messages of an agent."""

    async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
        """The message of ``agent`` in the present state of ``env``; ``seed`` is the evaluation's."""
        ...


@dataclass(frozen=True)
class PolicyActor:
    """Samples from a policy."""

    client: PolicyClient

    async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
        said = [completion for answer in earlier.get(agent, ()) for completion in answer.completions]
        return await self.client.ask(env, agent, task, 1, seed, said=said)


@dataclass(frozen=True)
class EchoActor:
    """Repeats the last message of another agent, so that its proposal is executed as it is."""

    of: str

    async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
        return Answer(earlier[self.of][-1].text if self.of in earlier else "")


@dataclass(frozen=True)
class HumanActor:
    """Sends what a person writes: ``ask(agent, prompt)`` shows the prompt and returns the message."""

    ask: Callable[[str, Sequence[Message]], str]

    async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
        return Answer(whole_characters(self.ask(agent, prompt_of(env, agent))))


@dataclass
class EpisodeResult:
    """One episode: ``tokens`` generated and ``prompt_tokens`` read for it, in ``env_steps`` steps.

    ``pictures`` of the world: at the start and after each turn, where it offers any.  ``world``: see :class:`Task`.
    ``team_return`` is what the team earned, in the place ``role`` of the task (see :class:`Task`).
    ``lost``: the fault that ended it, with its message in ``failure``; it is then no result of the team's.
    """

    task_id: str
    success: bool
    turns: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    tokens: int = 0
    prompt_tokens: int = 0
    env_steps: int = 0
    pictures: list[Picture] = field(default_factory=list)
    world: str = ""
    role: str = ""
    team_return: float = 0.0
    lost: FaultKind | None = None
    failure: str = ""

    def see(self, world: TeamEnv, drawings: bool) -> None:
        """Add the picture of ``world`` now, where it has one."""
        if picture := world.picture() or (drawn(world) if drawings else None):
            self.pictures.append(picture)

    def add(self, step: Step, *, drawings: bool = True) -> None:
        """Add ``step``, each message to what its agent saw."""
        before, world, result = step.env, step.transition.env, step.transition.result
        for agent, answer in step.said.items():
            saw, prompt = prompt_of(before, agent)[-1]["content"], answer.prompt
            tokens = sum(len(each.token_ids) for each in answer.completions)
            sampled = {"tokens": tokens} if answer.completions else {}
            self.messages.append(
                {"turn": before.turn, "step": self.env_steps, "agent": agent, "saw": saw, "said": answer.text}
                | {**sampled, "team": result.team, "local": result.local[agent], "cut_prompts": prompt.cut}
                | {"retokenised_prompts": prompt.retokenised, **result.info}
                | ({"session": before.session} if before.session else {})
            )
            self.tokens += tokens
            self.prompt_tokens += sum(len(prompt.ids) for each in answer.completions if not each.text_only)
        self.env_steps += 1
        self.team_return += step.transition.team_return
        self.success, self.turns = result.success, world.turn
        if world.turn > before.turn:
            self.see(world, drawings)


async def play(
    env: TeamEnv,
    task: Task,
    actors: Mapping[str, Actor],
    seed: int,
    on_step: Callable[[TeamEnv, EpisodeResult], None] = lambda env, result: None,
    *,
    drawings: bool = True,
) -> EpisodeResult:
    """One episode of ``task``.  ``on_step`` is called at the start and after each step, with the world and the episode
    so far.  Without ``drawings`` a world that only draws itself has no pictures.
    """
    scored = {agent for agent, each in actors.items() if isinstance(each, PolicyActor) and not each.client.unscored}
    world = await start_env(env, task, actors.keys() - scored)
    result = EpisodeResult(task.task_id, False, 0, world=task.world, role=task.role)
    result.see(world, drawings)
    on_step(world, result)
    return await play_to_end(world, task, actors, seed, result, {}, on_step, drawings=drawings)


async def play_to_end(
    world: TeamEnv,
    task: Task,
    actors: Mapping[str, Actor],
    seed: int,
    result: EpisodeResult,
    earlier: Earlier,
    on_step: Callable[[TeamEnv, EpisodeResult], None] = lambda env, result: None,
    *,
    drawings: bool = True,
) -> EpisodeResult:
    """The episode of ``task`` in ``world``, with ``result`` and the messages ``earlier`` so far, played to its end."""

    async def ask(now: TeamEnv, agent: str) -> Answer:
        return await actors[agent].act(now, agent, task, earlier, seed)

    async for step in play_on(world, ask):
        result.add(step, drawings=drawings)
        earlier = with_messages(earlier, step.said)
        on_step(step.transition.env, result)
    return result


async def evaluate(
    env: TeamEnv,
    tasks: Sequence[Task],
    actors: Mapping[str, Actor],
    seed: int,
    on_episode: Callable[[EpisodeResult], None] = lambda result: None,
    faults: FaultSettings = DEFAULT_FAULTS,
) -> list[EpisodeResult]:
    """One episode per task, concurrently, in the order of ``tasks``; ``on_episode`` is called as each ends.

    Raises the exception of a fault that ``faults`` does not drop.  The caller checks how many are lost.
    """

    async def one(place: int, task: Task) -> EpisodeResult:
        result = await or_failure(play(env, task, actors, seed, drawings=place < DRAWN), task)
        if isinstance(result, Failure):
            faults.raise_if_stopping(result)
            result = EpisodeResult(task.task_id, False, 0, world=task.world, lost=result.kind, failure=result.message)
        on_episode(result)
        return result

    return await gather(*(one(place, task) for place, task in enumerate(tasks)))
