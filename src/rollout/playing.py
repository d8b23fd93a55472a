"""How an episode is played, in training and in evaluation, with a world that may wait for something, and may fail."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.text import Text

from ..envs.base import StepResult, TeamEnv, WorldFailure
from ..envs.returned import check_start, checked_prompt, checked_step
from ..experience import Completion, Episode, Failure, Message, Outcome, Task
from .engines.lockstep import hold
from .failures import failure_of

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Transition:
    """One step of a world."""

    env: TeamEnv
    """After the step."""
    result: StepResult
    ends_turn: bool
    """The last step of an episode ends its turn, too."""

    @property
    def team_return(self) -> float:
        """What the step adds to the episode's team return."""
        return self.result.team if self.ends_turn else 0.0

    def outcome(self, team_return: float, mixed_return: float | None = None) -> Outcome:
        """Of an episode that ends here."""
        return Outcome(self.result.success, self.env.turn, team_return, mixed_return)


async def advance(env: TeamEnv, texts: Mapping[str, str]) -> Transition:
    """Step ``env`` itself; a caller that needs the state before the step hands in a fork.  Lockstep engines wait for
    it, since it may await a process outside of the event loop.

    An error of the world's code is raised with a note: the turn, the agents and their messages.  What it returns is
    checked, see :mod:`..envs.returned`.
    """
    turn = env.turn

    def note() -> str:
        messages = "; ".join(f"agent {agent} said {text!r}" for agent, text in texts.items())
        return f"step of {type(env).__name__} in turn {turn}: {messages}"

    with noting(note), hold():
        result = await checked_step(env, texts)
    return Transition(env, result, result.done or env.turn > turn)


@dataclass(frozen=True)
class Prompt:
    """The token ids of a prompt; ``cut``: whether parts of its messages were left out; ``retokenised``: whether it
    contains an earlier completion in other tokens than were sampled."""

    ids: tuple[int, ...] = ()
    cut: bool = False
    retokenised: bool = False


@dataclass(frozen=True)
class Answer:
    """What an agent says in a state of a world: ``text``, which is that of the first of the ``completions`` that a
    policy sampled from ``prompt``.  A person's has none."""

    text: str
    prompt: Prompt = Prompt()
    completions: Sequence[Completion] = ()

    @classmethod
    def of(cls, prompt: Prompt, *completions: Completion) -> Answer:
        """A policy's."""
        return cls(completions[0].text, prompt, completions)


@dataclass(frozen=True)
class Step:
    """A step of an episode: what the agents that act ``said`` in the state of ``env``, which stays as it is, and what
    that led to."""

    env: TeamEnv
    said: Mapping[str, Answer]
    transition: Transition

    @classmethod
    async def take(cls, env: TeamEnv, said: Mapping[str, Answer]) -> Step:
        """See :func:`advance`."""
        return cls(env, said, await advance(env.fork(), {agent: each.text for agent, each in said.items()}))


async def play_on(env: TeamEnv, ask: Callable[[TeamEnv, str], Coroutine[Any, Any, Answer]]) -> AsyncIterator[Step]:
    """The steps of an episode from the state of ``env`` to its end.  Agents that act at once are asked at once."""
    while agents := env.next_agents():
        answers = await gather(*(ask(env, agent) for agent in agents))
        step = await Step.take(env, dict(zip(agents, answers, strict=True)))
        yield step
        env = step.transition.env


async def start_env(world: TeamEnv, task: Task) -> TeamEnv:
    """A fork of ``world`` at the start of ``task``.  Lockstep engines wait for it, as for a step."""
    env = world.fork()
    env.reset(task)
    with noting(lambda: f"begin of {type(env).__name__}"), hold():
        await env.begin()
        check_start(env)
    return env


def prompt_of(env: TeamEnv, agent: str) -> Sequence[Message]:
    """What ``agent`` sees in ``env`` now.  An error of the world's code has a note, as from :func:`advance`."""
    with noting(lambda: f"prompt of {type(env).__name__} in turn {env.turn} for agent {agent}"):
        return checked_prompt(env, agent)


def drawn(env: TeamEnv) -> dict[str, str] | None:
    """What :meth:`..envs.base.TeamEnv.draw` shows, for files: its ``svg``, and its ``text`` without markup."""
    if (drawing := env.draw()) is None:
        return None
    return {"svg": drawing.svg, "text": Text.from_markup(drawing.text).plain}


@contextmanager
def noting(note: Callable[[], str]) -> Iterator[None]:
    """A context from which errors are raised with ``note``; a :class:`WorldFailure` is no error of the code."""
    try:
        yield
    except WorldFailure:
        raise
    except Exception as error:
        error.add_note(note())
        raise


def naming(task: Task) -> AbstractContextManager[None]:
    """A context from which errors are raised with a note that names ``task``."""
    return noting(lambda: f"in an episode of task {task.task_id}")


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


async def or_failure(episode: Coroutine[Any, Any, T], task: Task) -> T | Failure:
    """``episode``, of ``task``, or why it is lost.  Raises the errors that are no faults of a single episode."""
    try:
        with naming(task):
            return await episode
    except Exception as error:
        if (failure := failure_of(error, task)) is None:
            raise
        _release(error)
    log.warning("an episode is lost: %s", failure.message)
    return failure


def _release(error: BaseException) -> None:
    """Let go of what the frames of ``error`` hold: the world of a lost episode may have a program that waits for a
    reply, and that is to end now, not with the failure.
    """
    errors: list[BaseException | None] = [error]
    done: list[BaseException] = []
    while errors:
        each = errors.pop()
        if each is not None and not any(each is other for other in done):
            done.append(each)
            traceback.clear_frames(each.__traceback__)
            errors += [each.__cause__, each.__context__]
            errors += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


async def or_lost_episode(episode: Coroutine[Any, Any, Episode], task: Task, sample: int = 0) -> Episode:
    """``episode``, or a lost one without nodes, which earns nothing, not even 0."""
    result = await or_failure(episode, task)
    return Episode(task, [], [], sample=sample, failure=result) if isinstance(result, Failure) else result
