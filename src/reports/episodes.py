"""What pages and the console show of stored episodes: texts of a bounded length, pictures, sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import CONTROLS

LONGEST = 8000  # characters of one text on the page
BASICS = {"turn", "step", "agent", "saw", "said", "tokens", "team", "local"}


def pictures_of(episode: Mapping[str, Any]) -> list[Any]:
    """The pictures of ``episode``, which hold anything; none where they are no list."""
    pictures = episode.get("pictures")
    return pictures if isinstance(pictures, list) else []


def session_of(message: Mapping[str, Any]) -> str:
    """In which ``message`` was said, of a message or a node; "" where there is none."""
    session = message.get("session")
    return plain(session) if isinstance(session, str) else ""


def plain(text: str) -> str:
    """``text`` with control characters made visible; one that is too long is cut, and says so."""
    excess = len(text) - LONGEST
    shown = text[:LONGEST].translate(CONTROLS)
    return f"{shown}\n… {excess:,} more characters are in the file" if excess > 0 else shown
