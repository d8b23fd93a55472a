"""A team plays in the terminal, turn by turn; a person may take any seat."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from ..envs.base import TeamEnv
from ..errors import ConfigError, check_whole, nearest
from ..evaluation.conditions import Condition, check_readable
from ..evaluation.episodes import EpisodeResult, HumanActor, play
from ..evaluation.request import EvalRequest
from ..experience import Message, Task
from ..reports.console import EpisodePrinter
from ..rollout.engines.requests import derive
from ..setup.checks import set_threads
from ..setup.evaluation import TeamSource, build_conditions, read_request, read_team
from ..setup.evaluation_actors import ActorFactory

FENCE = "```"


class InputEndedError(ValueError):
    """The input ended before a person wrote the message of their agent."""


def play_team(keys: Mapping[str, Any], console: Console | None = None) -> list[EpisodeResult]:
    """Play the episodes that ``keys``, those of ``configs/play.yaml``, describe, and show them.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong, :class:`InputEndedError`.
    """
    console = console or Console(highlight=False)
    team = read_team(keys)
    first, count = keys["task"], keys["tasks"]
    check_whole("task", first, 0, ConfigError)
    check_whole("tasks", count, 1, ConfigError)
    request = read_request({**keys, "tasks": first + count, "samples": 1}, team)
    set_threads(keys["threads"], team.config["threads"])
    conditions = build_conditions(request, team)
    if len(conditions) > 1:
        names = ", ".join(condition.name for condition in conditions)
        raise ConfigError(f"play shows one world at one temperature, the keys name several: {names}")
    humans = _humans(keys["human"], conditions[0], request)
    return asyncio.run(_play(conditions[0], conditions[0].tasks[first:], humans, request, team, console))


def _humans(value: Any, condition: Condition, request: EvalRequest) -> list[str]:
    """The agents whose messages a person writes."""
    agents = value if isinstance(value, list) else [value]
    for agent in agents:
        if agent not in condition.world.agents:
            raise ConfigError(
                f"human={agent}: the world has no agent '{agent}'{nearest(agent, condition.world.agents)}"
            )
        for key in ("agents", "silence", "echo"):
            if agent in getattr(request, key):
                raise ConfigError(f"human and {key} both decide the messages of agent '{agent}': give one of them")
    return agents


async def _play(
    condition: Condition,
    tasks: Sequence[Task],
    humans: Sequence[str],
    request: EvalRequest,
    team: TeamSource,
    console: Console,
) -> list[EpisodeResult]:
    factory, world = ActorFactory(team.config["engine"]), condition.world
    printer = EpisodePrinter(console)

    def on_step(env: TeamEnv, result: EpisodeResult) -> None:
        drawing = env.draw()
        printer.step(result, env.turn, env.horizon, not env.next_agents(), drawing.text if drawing else None)

    sources = {agent: source for agent, source in condition.assignment.items() if agent not in humans}
    try:
        actors = factory.team(sources, condition.temperature)
        actors |= dict.fromkeys(humans, HumanActor(_asking(printer)))
        check_readable(condition, actors)
        await world.open()
        seed = derive(request.seed, "eval", request.split)  # an evaluation's: the same episodes
        return [await play(world, task, actors, seed, on_step) for task in tasks]
    finally:
        await world.close()
        await factory.close()


def _asking(printer: EpisodePrinter) -> Callable[[str, Sequence[Message]], str]:
    def ask(agent: str, prompt: Sequence[Message]) -> str:
        printer.prompt(agent, prompt)
        try:
            with _interruptible():
                return read_message(agent)
        except EOFError as error:
            raise InputEndedError(f"the input has ended: there is no message for agent '{agent}'") from error

    return ask


def read_message(agent: str) -> str:
    """One line of the standard input; where it opens a fenced block, the lines to its end, too.

    Raises ``EOFError``.
    """
    text = input(f"{agent}> ")
    while text.count(FENCE) % 2:
        text += "\n" + input("... ")
    if not sys.stdin.isatty():
        print()  # a terminal ends the line when a person does
    return text


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends ``input``: asyncio's own handler would only cancel the task that waits for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
