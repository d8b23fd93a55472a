"""What episodes on the console have in common: a message with its rewards, and how an episode ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from ..errors import visible
from .episodes import plain
from .values import numeric


def message_line(message: Mapping[str, Any], notes: Sequence[str] = (), indent: str = "") -> Text:
    """``agent: text  (notes, rewards)``, without characters that a terminal would obey; further lines after ``indent``.
    A reward that is not known is left out."""
    known = [(name, message.get(key)) for name, key in (("outcome", "team"), ("local", "local"))]
    notes = [*notes, *(f"{name} {value:+.2f}" for name, value in known if numeric(value))]
    said = visible(plain(message["said"])).replace("\n", f"\n{indent}")
    faint = (f"  ({', '.join(notes)})" if notes else "", "dim")
    return Text.assemble((f"{visible(message['agent'])}: ", "bold cyan"), said or "(nothing)", faint)


def ending(success: bool, turns: int) -> str:
    """``solved after 3 turns``."""
    return f"{'solved' if success else 'not solved'} after {turns} turn{'s' if turns != 1 else ''}"
