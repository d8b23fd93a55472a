"""A world as an environment of verifiers: its taskset, and a class whose roles are the world's agents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import verifiers.v1 as vf
from pydantic import create_model

from ...experience import Task as WorldTask
from ..base import TeamEnv
from ..returned import checked_prompt, checked_step

SEAT = {"harness": {"id": "troupe_chat"}, "runtime": {"type": "subprocess"}}


class WorldTaskData(vf.TaskData):
    """``task_id`` of the world's task, of ``split``."""

    task_id: str
    split: str


class WorldTasksetConfig(vf.TasksetConfig):
    """``count`` tasks of ``split``, drawn with ``seed``."""

    split: str = "test"
    count: int = 100
    seed: int = 0


class Message(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    """One prompt of an agent; its reward comes from the world."""


def environment_of(world: TeamEnv) -> tuple[type[vf.Taskset[Any, Any]], type[vf.Env[Any]]]:
    """The classes that a module of yours names in its ``__all__``, for ``eval --env.taskset.id MODULE``.

    Each message is a trace of its role, with the prompt that the world gives.  Its rewards are ``local`` and, once the
    turn has ended, ``team``; ``success`` is a metric of every trace.
    """

    class WorldTask_(vf.Task[WorldTaskData, vf.State, vf.TaskConfig]):
        """A task of the world."""

    class WorldTaskset(vf.Taskset[WorldTask_, WorldTasksetConfig]):
        def load(self) -> Iterator[WorldTask_]:
            for task in _drawn(world, self.config):
                yield WorldTask_(WorldTaskData(task_id=task.task_id, split=task.split), self.config.task)

    roles: dict[str, Any] = {agent: (vf.AgentConfig, vf.AgentConfig.model_validate(SEAT)) for agent in world.agents}
    config_type = create_model("WorldEnvConfig", __base__=vf.EnvConfig, **roles)

    class WorldEnv(vf.Env[config_type]):
        async def start(self) -> None:
            await world.open()
            self._tasks = {task.task_id: task for task in _drawn(world, self.config.taskset)}

        async def stop(self) -> None:
            await world.close()

        async def run(self, task: vf.Task[Any, Any, Any], agents: vf.Agents) -> None:
            await _play(world.fork(), self._tasks[task.data.task_id], agents)

    return WorldTaskset, WorldEnv


def _drawn(world: TeamEnv, config: Any) -> Sequence[WorldTask]:
    return world.tasks(config.split, config.count, config.seed)


async def _play(episode: TeamEnv, task: WorldTask, agents: vf.Agents) -> None:
    """To its end, and reward the traces.  Raises ``RuntimeError`` where a message could not be had."""
    episode.reset(task)
    await episode.begin()
    traces: list[vf.Trace] = []
    unpaid: list[vf.Trace] = []
    success = False
    while acting := episode.next_agents():
        turn, asked = episode.turn, [_prompted(episode, agent) for agent in acting]
        spoken = await asyncio.gather(
            *(getattr(agents, agent).run(each) for agent, each in zip(acting, asked, strict=True))
        )
        for agent, trace in zip(acting, spoken, strict=True):
            if not trace.ok or not trace.num_turns:
                raise RuntimeError(f"{agent}, turn {turn} of {task.task_id}: no message, {trace.last_error}")
        texts = {agent: _text(trace) for agent, trace in zip(acting, spoken, strict=True)}
        result = await checked_step(episode, texts)
        for agent, trace in zip(acting, spoken, strict=True):
            trace.record_reward("local", result.local[agent])
        traces, unpaid, success = [*traces, *spoken], [*unpaid, *spoken], result.success
        if result.done or episode.turn > turn:
            for trace in unpaid:
                trace.record_reward("team", result.team)
            unpaid = []
    for trace in traces:
        trace.record_metric("success", float(success))


def _prompted(episode: TeamEnv, agent: str) -> Message:
    messages = [dict(message) for message in checked_prompt(episode, agent)]
    return Message(vf.TaskData.model_validate({"prompt": messages}))


def _text(trace: vf.Trace) -> str:
    """The message of an agent, blanks included."""
    content = trace.branches[-1].messages[-1].content
    return content if isinstance(content, str) else ""
