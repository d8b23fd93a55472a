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
from .values import numeric


@dataclass(frozen=True)
class Continuation:
    """What followed the fork: ``messages`` as an evaluated episode has them, and ``pictures`` of the world by turn: at
    its start; ``end`` is the last one.  ``turns`` counts from the start of the episode.
    """

    title: str
    messages: Sequence[Mapping[str, Any]]
    success: bool
    turns: int
    pictures: Mapping[int, str] = field(default_factory=dict)
    end: str = ""


def show_replay(
    console: Console, heads: Sequence[str], before: Sequence[Mapping[str, Any]], continuations: Sequence[Continuation]
) -> None:
    """``heads`` are lines above; ``before`` are the messages until the fork, which all ``continuations`` share."""
    for head in heads:
        console.print(Text(visible(head), "bold" if head is heads[0] else ""), soft_wrap=True)
    if before:
        console.print(Text("replayed", "bold"))
        for message in before:
            console.print(Text(f"turn {message['turn'] + 1} ", "dim"), _message(message), sep="", soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False, show_lines=True)
    table.add_column("turn", width=4)
    for continuation in continuations:
        table.add_column(Text(visible(continuation.title)), ratio=1, overflow="fold")
    for turn in sorted({message["turn"] for each in continuations for message in each.messages}):
        table.add_row(str(turn + 1), *(_turn(each, turn) for each in continuations))
    table.add_row("end", *(_end(each) for each in continuations))
    console.print(table)


def _turn(continuation: Continuation, turn: int) -> Group:
    messages = [message for message in continuation.messages if message["turn"] == turn]
    picture = continuation.pictures.get(turn, "") if messages else ""
    return Group(*_picture(picture), *map(_message, messages))


def _end(continuation: Continuation) -> Group:
    turns = f"{continuation.turns} turn{'s' if continuation.turns != 1 else ''}"
    verdict = Text(f"{'solved' if continuation.success else 'not solved'} after {turns}", "bold")
    return Group(*_picture(continuation.end), verdict)


def _picture(rows: str) -> Iterable[Text]:
    return [Text(visible(plain(rows)), "dim")] if rows else []


def _message(message: Mapping[str, Any]) -> Text:
    known = [(name, message.get(key)) for name, key in (("team", "team"), ("own", "local"))]
    rewards = [f"{name} {value:+.2f}" for name, value in known if numeric(value)]
    said = visible(plain(message["said"])) or "(nothing)"
    return Text.assemble(
        (f"{visible(message['agent'])}: ", "bold cyan"), said, (f"  ({', '.join(rewards)})" if rewards else "", "dim")
    )
