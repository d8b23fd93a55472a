"""Which exceptions are faults that cost one episode, how the message of a world's exception reads, and what is left."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from types import FrameType

from ..envs.base import SandboxFailure, TeamEnv, WorldFailure
from ..envs.returned import WorldValueError
from ..errors import ConfigError, LostEpisodesError
from ..experience import Episode, Failure, Task
from ..sandbox import SandboxUnavailable
from .engines.base import RequestFailedError


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
