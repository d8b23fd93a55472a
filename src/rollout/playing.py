"""What samplers and evaluation do with a world that may wait for something, and may fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from ..envs.base import StepResult, TeamEnv, WorldFailure
from ..experience import Episode, Task
from .engines.lockstep import hold

T = TypeVar("T")
log = logging.getLogger(__name__)


async def act(env: TeamEnv, texts: Mapping[str, str]) -> StepResult:
    """One step of ``env``.  Lockstep engines wait for it, since it may await a process outside of the event loop."""
    with hold():
        return await env.step(texts)


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """The results of ``work``, done side by side, in order.  One that fails cancels the others and raises."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from failed.exceptions[0].__cause__
    return [task.result() for task in tasks]


async def lasting(task: Task, play: Coroutine[Any, Any, Episode], sample: int = 0) -> Episode:
    """The episode of ``play``, or a lost one, without nodes, where the world failed: it earns nothing, not even 0."""
    try:
        return await play
    except WorldFailure as error:
        log.warning("an episode is lost: task %s, sample %d: %s", task.task_id, sample, error)
        return Episode(task, [], [], sample=sample, failure=str(error))
