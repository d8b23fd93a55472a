"""Episodes with given policies: success, turns, rewards per role, with 95 % intervals.

Success is one episode from the start state, at most T turns, on held-out tasks.  ``Silence`` and ``Echo`` stand in
for an agent to ask what it contributes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Protocol

from .envs.base import TeamEnv
from .experience import Task
from .reports.statistics import wilson
from .rollout.seeds import derive
from .rollout.voice import Voice


class Speaker(Protocol):
    """Whatever can say something in an agent's place."""

    async def say(self, env: TeamEnv, agent: str, task: Task, heard: Mapping[str, str], seed: int) -> str: ...


@dataclass(frozen=True)
class PolicySpeaker:
    """A policy, sampled."""

    voice: Voice

    async def say(self, env: TeamEnv, agent: str, task: Task, heard: Mapping[str, str], seed: int) -> str:
        prompt = self.voice.encode(agent, task.task_id, env.observe(agent))
        place = (task.task_id, agent, env.turn)
        (completion,) = await self.voice.speak(prompt, 1, derive(seed, *place), place)
        return completion.text


class Silence:
    """Says nothing: what remains of the team without this agent's messages."""

    async def say(self, env: TeamEnv, agent: str, task: Task, heard: Mapping[str, str], seed: int) -> str:
        return ""


@dataclass(frozen=True)
class Echo:
    """Repeats what another agent said last: its proposal is executed as it is."""

    of: str

    async def say(self, env: TeamEnv, agent: str, task: Task, heard: Mapping[str, str], seed: int) -> str:
        return heard.get(self.of, "")


@dataclass
class Result:
    """One episode as played.  ``pictures`` of the world: at the start and after each turn, where it offers any."""

    task_id: str
    success: bool
    turns: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    pictures: list[tuple[str, ...]] = field(default_factory=list)


async def play(env: TeamEnv, task: Task, speakers: Mapping[str, Speaker], seed: int) -> Result:
    """One episode of ``task``."""
    world = env.fork()
    world.reset(task)
    heard: dict[str, str] = {}
    result = Result(task.task_id, False, 0)
    if picture := world.picture():
        result.pictures.append(picture)
    while acting := world.next_agents():
        turn = world.turn
        texts = {agent: await speakers[agent].say(world, agent, task, heard, seed) for agent in acting}
        seen = {agent: world.observe(agent)[-1]["content"] for agent in acting}
        step = await world.step(texts)
        heard.update(texts)
        for agent, text in texts.items():
            result.messages.append(
                {"turn": turn, "agent": agent, "saw": seen[agent], "said": text, "team": step.team}
                | {"local": step.local[agent], **step.info}
            )
        result.success = step.success
        if world.turn > turn and (picture := world.picture()):
            result.pictures.append(picture)
    result.turns = world.turn
    return result


async def evaluate(env: TeamEnv, tasks: Sequence[Task], speakers: Mapping[str, Speaker], seed: int) -> list[Result]:
    """One episode a task, side by side."""
    return list(await asyncio.gather(*(play(env, task, speakers, seed) for task in tasks)))


def summarise(results: Sequence[Result]) -> dict[str, Any]:
    """Flat metrics: success with its 95 % Wilson interval, average turns, and per role the mean reward a message and
    the shares of malformed and blocked messages.
    """
    successes = sum(result.success for result in results)
    summary: dict[str, Any] = {
        "success": successes / len(results),
        "success_ci95": list(wilson(successes, len(results))),
        "turns": fmean(result.turns for result in results),
        "episodes": len(results),
    }
    spoken = [message for result in results for message in result.messages]
    for agent in sorted({message["agent"] for message in spoken}):
        mine = [message for message in spoken if message["agent"] == agent]
        summary[f"{agent}/reward"] = fmean(m["team"] + m["local"] for m in mine)
        for name in ("malformed", "blocked"):
            if all(name in m for m in mine):
                summary[f"{agent}/{name}"] = fmean(m[name] for m in mine)
    return summary
