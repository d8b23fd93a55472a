"""Episodes on the console: one while it is played, and a replayed one, its stored continuation beside the new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import indent
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..errors import visible
from ..evaluation.episodes import EpisodeResult
from ..experience import Message
from .episodes import plain, session_of
from .values import numeric


class EpisodePrinter:
    """Prints what is new of an episode; control characters of messages are made visible."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._messages, self._turn = 0, -1

    def step(self, result: EpisodeResult, turn: int, horizon: int, done: bool, drawing: str | None = None) -> None:
        """The episode so far, ``turn`` turns of at most ``horizon``; the first call of an episode has no messages.

        ``drawing``, the world now in rich's markup, takes the place of its picture where the console shows colours.
        """
        if not result.messages:
            self._messages, self._turn = 0, -1
            self._print(f"task {result.task_id}", "bold")
        for message in result.messages[self._messages :]:
            self._console.print(message_line(message, indent="  "), soft_wrap=True)
        self._messages = len(result.messages)
        if done:
            self._picture(result, drawing)
            self._print(f"{ending(result.success, turn)}\n", "bold")
        elif turn != self._turn:
            self._print(f"turn {turn + 1} of {horizon}", "bold")
            self._picture(result, drawing)
        self._turn = turn

    def prompt(self, agent: str, prompt: Sequence[Message]) -> None:
        """What ``agent`` sees, for the person in its place."""
        self._print(f"{agent} sees:", "dim")
        for message in prompt:
            self._print(indent(plain(message["content"]), "  "), "dim")

    def _picture(self, result: EpisodeResult, drawing: str | None) -> None:
        if drawing is not None and self._console.color_system is not None:
            self._console.print(Padding(Text.from_markup(drawing), (0, 0, 0, 2)), soft_wrap=True)
            return
        picture = result.pictures[-1] if result.pictures else ()
        for row in picture["text"].split("\n") if isinstance(picture, dict) else picture:
            self._print(f"  {plain(row)}")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(visible(text), style), soft_wrap=True)


def message_line(message: Mapping[str, Any], notes: Sequence[str] = (), indent: str = "") -> Text:
    """``agent: text  (notes, rewards)``, without characters that a terminal would obey; further lines after ``indent``.
    A reward that is not known is left out; a sub-agent's session, a path, is before its message, which it indents."""
    known = [(name, message.get(key)) for name, key in (("outcome", "team"), ("local", "local"))]
    notes = [*notes, *(f"{name} {value:+.2f}" for name, value in known if numeric(value))]
    said = visible(plain(message["said"])).replace("\n", f"\n{indent}")
    faint = (f"  ({', '.join(notes)})" if notes else "", "dim")
    session = visible(session_of(message))
    inside = f"{'  ' * min(session.count('/') + 1, 16)}{session} " if session else ""
    return Text.assemble((inside, "dim"), (f"{visible(message['agent'])}: ", "bold cyan"), said or "(nothing)", faint)


def ending(success: bool, turns: int) -> str:
    """``solved after 3 turns``."""
    return f"{'solved' if success else 'not solved'} after {turns} turn{'s' if turns != 1 else ''}"


@dataclass(frozen=True)
class ShownContinuation:
    """What followed the fork: ``messages`` as an evaluated episode has them, and ``pictures`` of the world by turn: at
    its start; ``end`` is the last one.  ``turns`` counts from the start of the episode.  A message with ``forced`` is
    none of the policies': the command named it.
    """

    title: str
    messages: Sequence[Mapping[str, Any]]
    success: bool
    turns: int
    pictures: Mapping[int, str] = field(default_factory=dict)
    end: str = ""


def show_replay(
    console: Console,
    heads: Sequence[str],
    before: Sequence[Mapping[str, Any]],
    continuations: Sequence[ShownContinuation],
) -> None:
    """``heads`` are lines above; ``before`` are the messages until the fork, which all ``continuations`` share."""
    for head in heads:
        console.print(Text(visible(head), "bold" if head is heads[0] else ""), soft_wrap=True)
    if before:
        console.print(Text("replayed", "bold"))
        for message in before:
            console.print(Text(f"turn {message['turn'] + 1} ", "dim"), message_line(message), sep="", soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False, show_lines=True)
    table.add_column("turn", width=4)
    for continuation in continuations:
        table.add_column(Text(visible(continuation.title)), ratio=1, overflow="fold")
    for turn in sorted({message["turn"] for each in continuations for message in each.messages}):
        table.add_row(str(turn + 1), *(_turn(each, turn) for each in continuations))
    table.add_row("end", *(_end(each) for each in continuations))
    console.print(table)


def _turn(continuation: ShownContinuation, turn: int) -> Group:
    messages = [message for message in continuation.messages if message["turn"] == turn]
    picture = continuation.pictures.get(turn, "") if messages else ""
    lines = (message_line(message, ["forced"] if message.get("forced") else []) for message in messages)
    return Group(*_picture(picture), *lines)


def _end(continuation: ShownContinuation) -> Group:
    verdict = ending(continuation.success, continuation.turns)
    return Group(*_picture(continuation.end), Text(verdict, "bold"))


def _picture(rows: str) -> Iterable[Text]:
    return [Text(visible(plain(rows)), "dim")] if rows else []
