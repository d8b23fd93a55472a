"""A replayed episode on the console: the stored continuation beside the new ones, turn by turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ..errors import visible
from .episodes import plain
from .play import ending, message_line


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
