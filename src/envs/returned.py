"""What a world returns, checked where it enters: elsewhere a wrong value names no world, or shows nowhere.

Numbers become ``float``, whatever type can be one: those of numpy, tensors without dimensions.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import Any

from ..errors import whole_characters
from ..experience import Message, Split, Task
from .base import StepResult, TeamEnv, WorldFailure

RESERVED = frozenset(
    {
        *("reward", "outcome_reward", "local_reward", "tokens_per_message", "cut_prompts", "retokenised_prompts"),
        *("turn", "step", "agent", "saw", "said", "tokens", "team", "local"),
    }
)
"""Names of Troupe's own numbers of a message, in metrics and in the files of episodes, and so none of ``info``."""


class WorldValueError(WorldFailure, ValueError):
    """A world returned what its contract does not allow; the message names the world, its method, and the value."""


def finite(name: str, value: Any) -> float:
    """``value`` as a number.  Raises ``TypeError`` where it is none, or not finite."""
    if type(value) is float and math.isfinite(value):  # nearly always
        return value
    number = math.nan
    complex_type = str(getattr(value, "dtype", "")).startswith("complex")  # numpy's, of which float() is the real part
    if not complex_type and not isinstance(value, str | bytes | bytearray | memoryview):
        with suppress(TypeError, ValueError, OverflowError, RuntimeError):  # torch's
            number = float(value)
    if not math.isfinite(number):
        raise TypeError(f"{name} must be a finite number, got {value!r:.200}")
    return number


def checked_info(info: Any, more: Collection[str] = ()) -> dict[str, float]:
    """``info`` as numbers by name.  Raises ``TypeError`` for other values, and for a name of
    :data:`RESERVED` or ``more``.
    """
    if not isinstance(info, Mapping) or not all(isinstance(name, str) for name in info):
        raise TypeError(f"info must hold numbers by name, got {info!r:.200}")
    if taken := info.keys() & RESERVED.union(more):
        raise TypeError(f"info: {', '.join(sorted(taken))} is a number of Troupe's; give yours another name")
    return {whole_characters(name): finite(f"info: {name}", value) for name, value in info.items()}


# ---- an episode -----------------------------------------------------------------------------------------------------


async def checked_step(world: TeamEnv, actions: Mapping[str, str]) -> StepResult:
    """``world.step(actions)``.  Raises :class:`WorldValueError` where rewards and ``info`` are no finite numbers, or of
    other agents than those that acted, and where ``done``, ``turn`` and the agents that act next do not fit.
    """
    turn = world.turn
    result, acting = await world.step(actions), world.next_agents()
    try:
        return _checked_result(world, turn, actions, result, acting)
    except TypeError as error:
        agents = f"agent{'s' if len(actions) > 1 else ''} {' and '.join(actions)}"
        raise WorldValueError(f"{type(world).__name__}.step, {agents}, turn {turn}: {error}") from None


def _checked_result(world: TeamEnv, turn: int, acted: Mapping[str, str], result: Any, acting: Any) -> StepResult:
    _expect(isinstance(result, StepResult), "it must return a StepResult, got", result)
    _expect(isinstance(result.local, Mapping), "local must hold a reward by agent, got", result.local)
    _expect(
        result.local.keys() == acted.keys(), "local must hold the rewards of the agents that acted, got", result.local
    )
    local = {agent: finite(f"the local reward of {agent}", reward) for agent, reward in result.local.items()}
    team, info = finite("the team reward", result.team), checked_info(result.info)
    done, success = _boolean("done", result.done), _boolean("success", result.success)
    _check_acting(world, acting)
    _expect(done == (not acting), f"done is {done}, but next_agents gives", acting)
    now = world.turn
    _expect(isinstance(now, int) and now >= 0, f"one step takes turn {turn} to", now)
    _expect(done or now < world.horizon, f"the episode goes on at its horizon {world.horizon}, in turn", now)
    return StepResult(local, team, done, success, info)


def _boolean(name: str, value: Any) -> bool:
    """numpy's and torch's are converted, too."""
    if not isinstance(value, bool):
        kind, shape = str(getattr(value, "dtype", "")), getattr(value, "shape", None)
        _expect(kind in ("bool", "torch.bool") and shape == (), f"{name} must be True or False, got", value)
    return bool(value)


def _expect(holds: bool, rule: str, value: object) -> None:
    if not holds:
        raise TypeError(f"{rule} {value!r:.200}")


def _check_acting(world: TeamEnv, acting: Any) -> None:
    fine = isinstance(acting, tuple | list) and all(isinstance(agent, str) for agent in acting)
    if not fine or len({*acting}) < len(acting) or not {*acting} <= {*world.agents}:
        known = ", ".join(world.agents)
        raise TypeError(f"next_agents must be a tuple of different agents of {known}, got {acting!r:.200}")


def check_start(world: TeamEnv) -> None:
    """Raise :class:`WorldValueError` where nobody, or nobody of the team, acts in ``world`` after a reset."""
    acting = world.next_agents()
    try:
        _check_acting(world, acting)
        _expect(len(acting) > 0, "after a reset somebody must act, got", acting)
        _expect(world.turn == 0, "after a reset turn must be 0, got", world.turn)
    except TypeError as error:
        raise WorldValueError(f"{type(world).__name__}.reset: {error}") from None


def checked_prompt(world: TeamEnv, agent: str) -> Sequence[Message]:
    """``world.observe(agent)``, in whole characters: neither tokenizers nor files take half of a surrogate pair.

    Raises :class:`WorldValueError` for what is no list of chat messages.
    """
    messages = world.observe(agent)
    fine = isinstance(messages, Sequence) and len(messages) > 0 and all(map(_is_message, messages))
    if not fine:
        raise WorldValueError(
            f"{type(world).__name__}.observe, agent {agent}, turn {world.turn}: it must return chat messages, each "
            f"with role and content as texts, got {messages!r:.200}"
        )
    if all(text.isascii() for message in messages for text in message.values()):
        return messages
    return [{key: whole_characters(text) for key, text in message.items()} for message in messages]


def _is_message(message: object) -> bool:
    return (
        isinstance(message, Mapping)
        and {"role", "content"} <= message.keys()
        and all(isinstance(text, str) for text in message.values())
    )


# ---- tasks ----------------------------------------------------------------------------------------------------------


class TaskSource:
    """The tasks of ``world``.  A task that was drawn for one split is in no other: success on tasks that were learnt
    from would be reported as that on held-out tasks.  ``held_out`` has the tasks of a run's evaluations, by split, once
    they are drawn.  Where a world has the same few tasks in each split (``tasks_are_all``), nothing is held out.
    """

    def __init__(self, world: TeamEnv) -> None:
        self.world = world
        self.held_out: dict[Split, list[Task]] = {}
        self._drawn: dict[Any, Task] = {}  # by id, and by what the data are

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        """``world.tasks(split, count, seed)``.

        Raises :class:`WorldValueError` for what are not ``count`` different tasks of ``split``, and for one that was
        drawn for another split: under the same ``task_id``, or with the same data and the same first prompts, which
        differ where a world draws its instance from the id.
        """
        name = f"{type(self.world).__name__}.tasks({split!r}, {count}, {seed})"
        drawn = self.world.tasks(split, count, seed)
        tasks = list(islice(drawn, count + 1)) if isinstance(drawn, Iterable) else []  # it may have no end
        try:
            _expect(isinstance(drawn, Iterable), "it must return a list of tasks, got", drawn)
            more = "more" if len(tasks) > count else len(tasks)
            _expect(len(tasks) == count, f"it must return {count} tasks, got", more)
            for task in tasks:
                self._check(task, split)
            ids = [task.task_id for task in tasks]
            twice = next((each for each in ids if ids.count(each) > 1), None) if len({*ids}) < count else None
            _expect(twice is None, "two tasks have the task_id", twice)
        except TypeError as error:
            raise WorldValueError(f"{name}: {error}") from None
        for task in () if self.world.tasks_are_all else tasks:
            self._check_split(name, task)
        return tasks

    def _check(self, task: Any, split: Split) -> None:
        _expect(isinstance(task, Task), "it must return tasks, got", task)
        written = isinstance(task.task_id, str) and task.task_id and whole_characters(task.task_id) == task.task_id
        _expect(bool(written), "a task_id must be a text, got", task.task_id)
        _expect(task.split == split, f"task {task.task_id} must be of split {split}, got", task.split)
        _expect(isinstance(task.data, Mapping), f"the data of task {task.task_id} must be a mapping, got", task.data)

    def _check_split(self, name: str, task: Task) -> None:
        for key in (task.task_id, _digest(task)):
            other = self._drawn.setdefault(key, task)
            same = other.task_id == task.task_id
            if other.split != task.split and (same or self._looks(other) == self._looks(task)):
                which = task.task_id if same else f"{task.task_id} with the data of {other.task_id}"
                splits = f"{other.split} and {task.split}; a split has its own tasks"
                raise WorldValueError(f"{name}: task {which} is in two splits, {splits}")

    def _looks(self, task: Task) -> list[list[Message]]:
        """The first prompts of an episode; none where a program makes them."""
        env = self.world.fork()
        env.reset(task)
        return [list(checked_prompt(env, agent)) for agent in env.next_agents()] if env.begins_at_reset else []


def _digest(task: Task) -> bytes | str:
    """Of the content of ``task``; its id where it has no data, or none that can be written."""
    if not task.data:
        return task.task_id
    try:
        content = _canonical([task.world, task.data])
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, LookupError, RecursionError):
        return task.task_id
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _canonical(value: Any) -> str:
    """Equal for equal values, whatever the order of keys and of sets, and which parts are one object: pickle tells
    these apart."""
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{_canonical(key)}:{_canonical(each)}' for key, each in value.items()))}}}"
    if isinstance(value, set | frozenset):
        return f"{{{','.join(sorted(map(_canonical, value)))}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_canonical, value))}]"
    return repr(value if isinstance(value, str | bytes | int | float | None) else pickle.dumps(value))
