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


async def step_env(env: TeamEnv, texts: Mapping[str, str]) -> StepResult:
    """One step of ``env``.  Lockstep engines wait for it, since it may await a process outside of the event loop."""
    with hold():
        return await env.step(texts)


async def gather(*coroutines: Coroutine[Any, Any, T]) -> list[T]:
    """Run ``coroutines`` concurrently; their results, in order.

    Unlike :func:`asyncio.gather`, the first failure cancels the others before it is raised: nothing goes on in the
    background for a task that is lost.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from failed.exceptions[0].__cause__
    return [task.result() for task in tasks]


async def or_lost_episode(episode: Coroutine[Any, Any, Episode], task: Task, sample: int = 0) -> Episode:
    """``episode``; where the world fails, a lost one without nodes, which earns nothing, not even 0."""
    try:
        return await episode
    except WorldFailure as error:
        log.warning("an episode is lost: task %s, sample %d: %s", task.task_id, sample, error)
        return Episode(task, [], [], sample=sample, failure=str(error))
