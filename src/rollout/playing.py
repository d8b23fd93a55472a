"""How an episode is played, in training and in evaluation, with a world that may wait for something, and may fail.

Which exceptions are faults that cost one episode, how the message of a world's exception reads, and what is left.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

from rich.text import Text

from ..envs.base import SandboxFailure, StepResult, TeamEnv, WorldFailure
from ..envs.returned import WorldValueError, check_start, checked_prompt, checked_step
from ..errors import ConfigError, LostEpisodesError
from ..experience import Completion, Episode, Failure, Message, Outcome, Task
from ..sandbox import SandboxUnavailable
from .engines.base import RequestFailedError
from .engines.lockstep import hold


def failure_of(error: Exception, task: Task) -> Failure | None:
    """Why the episode of ``task`` that raised ``error`` is lost; None where neither its world, nor a sandbox, nor a
    single request failed: such an error is one of the run, whatever the policies for faults.
    """
    match error:
        case SandboxFailure() | SandboxUnavailable():
            return Failure("sandbox", f"task {task.task_id}: {error}", error)
        case RequestFailedError():
            return Failure("engine", f"task {task.task_id}: {error}", error)
        case WorldValueError():  # raised with faults.world=stop, and from no line of the world's code
            return Failure("world", text := f"task {task.task_id}: {error}", WorldValueError(text))
        case WorldFailure():
            return Failure("world", f"task {task.task_id}: {error}", error)
        case ConfigError():  # a setting does not fit the world, in this episode or another
            return None
    message = describe_world_error(error, task)
    return None if message is None else Failure("world", message, error)


def describe_world_error(error: Exception, task: Task) -> str | None:
    """The world, its method, task, agents, turn, and the line of the world's code that raised ``error``; None where
    ``error`` was not raised in the code of a world.
    """
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    calls = [frame for frame, _ in frames if isinstance(frame.f_locals.get("self"), TeamEnv)]
    if not calls:
        return None
    # A world may call another, and its own methods.
    call = next((frame for frame in reversed(calls) if hasattr(TeamEnv, frame.f_code.co_name)), calls[0])
    world: TeamEnv = call.f_locals["self"]
    package = type(world).__module__.partition(".")[0]
    own = [(frame, line) for frame, line in frames if frame.f_globals.get("__name__", "").partition(".")[0] == package]
    place, line = own[-1] if own else next(each for each in frames if each[0] is call)
    turn = getattr(world, "turn", None)
    details = [f"task {task.task_id}", *_agents(call), *([] if turn is None else [f"turn {turn}"])]
    return (
        f"{type(world).__name__}.{call.f_code.co_name} raised {type(error).__name__}: {error} ({', '.join(details)}; "
        f"{place.f_code.co_filename}:{line})"
    )


def _agents(call: FrameType) -> list[str]:
    """The agents that a call of ``step`` or ``observe`` names."""
    names = call.f_code.co_varnames[1:2]
    argument = call.f_locals.get(names[0]) if names else None
    match call.f_code.co_name, argument:
        case "step", Mapping():
            agents = list(argument)
        case "observe", str():
            agents = [argument]
        case _:
            return []
    return [f"agent{'s' if len(agents) > 1 else ''} {' and '.join(map(str, agents))}"]


def failures_of(episodes: Sequence[Episode]) -> list[Failure]:
    """Why those of ``episodes`` that are lost are."""
    return [episode.failure for episode in episodes if episode.failure is not None]


def complete_tasks(episodes: Sequence[Episode], least: int = 1) -> list[Episode]:
    """The episodes of the tasks that lost none.

    What is lost may depend on what was said (a message that the world cannot judge), so that the samples that are left
    of a group would be a biased selection.  Raises :class:`..errors.LostEpisodesError` where fewer than ``least`` are
    complete.
    """
    broken = {episode.task.task_id for episode in episodes if episode.failure is not None}
    complete = [episode for episode in episodes if episode.task.task_id not in broken]
    if len(complete) < least and episodes:
        first = failures_of(episodes)[0].message
        raise LostEpisodesError(f"every task lost an episode, so that none is learnt from; the first: {first}")
    return complete


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
    policy sampled from ``prompt``.  A person's has none.  ``seconds``: from asking the engine to its answer."""

    text: str
    prompt: Prompt = Prompt()
    completions: Sequence[Completion] = ()
    seconds: float | None = field(default=None, compare=False)

    @classmethod
    def of(cls, prompt: Prompt, *completions: Completion, seconds: float | None = None) -> Answer:
        """A policy's."""
        return cls(completions[0].text, prompt, completions, seconds)


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


async def start_env(world: TeamEnv, task: Task, unscored: Collection[str] = ()) -> TeamEnv:
    """A fork of ``world`` at the start of ``task``.  Lockstep engines wait for it, as for a step."""
    env = world.fork()
    env.reset(task)
    env.unscored = unscored
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
