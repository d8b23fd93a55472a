"""Episodes for the viewer: which to show, and turn by turn what was seen, said and earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from ..runs.files import Evaluation, numeric

SHOWN = 12
KINDS = ("learnt", "lost", "kept", "never", "solved", "failed")
LONGEST = 8000  # characters of one text on the page
BASICS = {"turn", "agent", "saw", "said", "team", "local"}
CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}


@dataclass
class Line:
    """One message: what ``agent`` saw and said, its rewards by name, and what else is true of it."""

    agent: str
    saw: str
    said: str
    rewards: list[tuple[str, float]]
    flags: list[str]


@dataclass
class Turn:
    """The world as it was (rows of characters, or nothing) and what was said."""

    number: int
    picture: list[str]
    lines: list[Line] = field(default_factory=list)


@dataclass
class Played:
    """One episode; ``end`` is the world's last picture."""

    success: bool
    turns: list[Turn]
    count: int
    end: list[str]


@dataclass
class Pair:
    """One task as it was played in the first and in the last evaluation; None where it was not."""

    task_id: str
    first: Played | None
    last: Played | None

    @property
    def kind(self) -> str:
        """``learnt``, ``kept``, ``lost`` or ``never``; ``solved`` or ``failed`` where the task was played once."""
        known = [played.success for played in (self.first, self.last) if played is not None]
        if len(known) == 1:
            return "solved" if known[0] else "failed"
        return {(False, True): "learnt", (True, True): "kept", (True, False): "lost"}.get((known[0], known[1]), "never")


def choose(first: Evaluation | None, last: Evaluation | None, count: int = SHOWN) -> list[Pair]:
    """``count`` tasks, of each kind alike as far as there are any, by kind; of a kind the first of the file.

    Rare kinds are thus shown more often than they occurred.
    """
    played: dict[str, list[Mapping[str, Any] | None]] = {}
    for place, evaluation in enumerate((first, last)):
        for episode in evaluation.episodes if evaluation else []:
            played.setdefault(episode["task_id"], [None, None])[place] = episode
    pairs = [
        Pair(plain(task), *(None if episode is None else _played(episode) for episode in both))
        for task, both in played.items()
    ]
    # A kind of pairs is also which of the two evaluations they are from, so that both are shown.
    kinds: dict[tuple[str, bool], list[Pair]] = {}
    for pair in pairs:
        kinds.setdefault((pair.kind, pair.first is None), []).append(pair)
    dealt = [pair for round_ in zip_longest(*kinds.values()) for pair in round_ if pair is not None]
    return sorted(dealt[:count], key=lambda pair: KINDS.index(pair.kind))


def _played(episode: Mapping[str, Any]) -> Played:
    pictures = [_picture(rows) for rows in episode.get("pictures") or []]
    turns: dict[int, Turn] = {}
    for message in episode["messages"]:
        number = message["turn"]
        if number not in turns:
            turns[number] = Turn(number + 1, pictures[number] if 0 <= number < len(pictures) else [])
        turns[number].lines.append(_line(message))
    return Played(episode["success"], list(turns.values()), episode["turns"], pictures[-1] if pictures else [])


def _picture(rows: Any) -> list[str]:
    return [plain(row) for row in rows] if isinstance(rows, list) and all(isinstance(r, str) for r in rows) else []


def _line(message: Mapping[str, Any]) -> Line:
    rewards = [(name, float(message[name])) for name in ("team", "local") if numeric(message.get(name))]
    flags = [str(key) for key, value in message.items() if key not in BASICS and value is True]
    return Line(plain(message["agent"]), plain(message["saw"]), plain(message["said"]), rewards, flags)


def plain(text: str) -> str:
    """``text`` with control characters made visible, and its length bounded, which it then says."""
    more = len(text) - LONGEST
    shown = text[:LONGEST].translate(CONTROLS)
    return f"{shown}\n… {more:,} more characters are in the file" if more > 0 else shown


def agents(pairs: Sequence[Pair]) -> list[str]:
    """Who speaks, in the order of speaking."""
    played = [one for pair in pairs for one in (pair.first, pair.last) if one is not None]
    return list(dict.fromkeys(line.agent for one in played for turn in one.turns for line in turn.lines))
