"""Episodes for the viewer: which to show, and turn by turn what agents saw, said and earned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from ..errors import CONTROLS
from ..runs.episodes import EpisodeFile
from .values import numeric

SHOWN = 12
KINDS = ("newly_solved", "newly_failed", "solved_twice", "failed_twice", "solved", "failed")
LONGEST = 8000  # characters of one text on the page
BASICS = {"turn", "step", "agent", "saw", "said", "tokens", "team", "local"}


@dataclass
class MessageView:
    """One message: what ``agent`` saw and said, its rewards by name, and the names of its flags; ``session``: of the
    sub-agent that asked, a path."""

    agent: str
    session: str
    saw: str
    said: str
    rewards: list[tuple[str, float]]
    flags: list[str]


@dataclass
class TurnView:
    """The world at the start of a turn (rows of characters, or nothing), and the turn's messages."""

    number: int
    picture: list[str]
    messages: list[MessageView] = field(default_factory=list)


@dataclass
class EpisodeView:
    """One episode; ``count`` turns were used, ``end`` is the world's last picture."""

    success: bool
    turns: list[TurnView]
    count: int
    end: list[str]


@dataclass
class TaskView:
    """One task with its episode in the first and in the last evaluation; None where the evaluation has none."""

    task_id: str
    first: EpisodeView | None
    last: EpisodeView | None

    @property
    def kind(self) -> str:
        """``newly_solved``, ``newly_failed``, ``solved_twice`` or ``failed_twice``; with one episode ``solved`` or
        ``failed``."""
        successes = [episode.success for episode in (self.first, self.last) if episode is not None]
        if len(successes) == 1:
            return "solved" if successes[0] else "failed"
        changes = {(False, True): "newly_solved", (True, True): "solved_twice", (True, False): "newly_failed"}
        return changes.get((successes[0], successes[1]), "failed_twice")


def first_and_last(files: Iterable[EpisodeFile]) -> tuple[EpisodeFile | None, EpisodeFile | None]:
    """The first and the last evaluation of a run, two different ones or None.

    They are on the test split where it was played; an interrupted run has only validations after the first.
    """
    numbered = [file for file in files if file.iteration is not None]
    numbered.sort(key=lambda file: (file.split != "test", file.iteration))
    tests = [file for file in numbered if file.split == "test"]
    first = numbered[0] if numbered else None
    last = tests[-1] if len(tests) > 1 else numbered[-1] if numbered else None
    return first, last if last is not first else None


def choose(first: EpisodeFile | None, last: EpisodeFile | None, count: int = SHOWN) -> list[TaskView]:
    """At most ``count`` tasks: one of each kind in turn, in the order of the file, then sorted by kind.

    Rare kinds are thus shown more often than they occurred.
    """
    episodes: dict[str, list[EpisodeView | None]] = {}
    for place, file in enumerate((first, last)):
        for episode in file.episodes if file else []:
            episodes.setdefault(episode["task_id"], [None, None])[place] = _episode_view(episode)
    tasks = [TaskView(plain(task_id), *pair) for task_id, pair in episodes.items()]
    # The file counts, too: tasks of the first evaluation alone and of the last one alone are both to be shown.
    kinds: dict[tuple[str, bool], list[TaskView]] = {}
    for task in tasks:
        kinds.setdefault((task.kind, task.first is None), []).append(task)
    in_turn = [task for round_ in zip_longest(*kinds.values()) for task in round_ if task is not None]
    return sorted(in_turn[:count], key=lambda task: KINDS.index(task.kind))


def _episode_view(episode: Mapping[str, Any]) -> EpisodeView:
    pictures = [_picture(rows) for rows in pictures_of(episode)]
    turns: dict[int, TurnView] = {}
    for message in episode["messages"]:
        number = message["turn"]
        if number not in turns:
            turns[number] = TurnView(number + 1, pictures[number] if 0 <= number < len(pictures) else [])
        turns[number].messages.append(_message_view(message))
    return EpisodeView(episode["success"], list(turns.values()), episode["turns"], pictures[-1] if pictures else [])


def pictures_of(episode: Mapping[str, Any]) -> list[Any]:
    """The pictures of ``episode``, which hold anything; none where they are no list."""
    pictures = episode.get("pictures")
    return pictures if isinstance(pictures, list) else []


def _picture(rows: Any) -> list[str]:
    """Rows of characters; of a drawing those that say the same."""
    if isinstance(rows, dict) and isinstance(rows.get("text"), str):
        rows = rows["text"].split("\n")
    return [plain(row) for row in rows] if isinstance(rows, list) and all(isinstance(r, str) for r in rows) else []


def _message_view(message: Mapping[str, Any]) -> MessageView:
    names = (("outcome", "team"), ("local", "local"))
    rewards = [(name, float(message[key])) for name, key in names if numeric(message.get(key))]
    flags = [str(key) for key, value in message.items() if key not in BASICS and value is True]
    texts = (plain(message["saw"]), plain(message["said"]))
    return MessageView(plain(message["agent"]), session_of(message), *texts, rewards, flags)


def session_of(message: Mapping[str, Any]) -> str:
    """In which ``message`` was said, of a message or a node; "" where there is none."""
    session = message.get("session")
    return plain(session) if isinstance(session, str) else ""


def plain(text: str) -> str:
    """``text`` with control characters made visible; one that is too long is cut, and says so."""
    excess = len(text) - LONGEST
    shown = text[:LONGEST].translate(CONTROLS)
    return f"{shown}\n… {excess:,} more characters are in the file" if excess > 0 else shown


def agents(tasks: Sequence[TaskView]) -> list[str]:
    """The agents of the episodes, in the order of their first message."""
    episodes = [episode for task in tasks for episode in (task.first, task.last) if episode is not None]
    return list(dict.fromkeys(message.agent for e in episodes for turn in e.turns for message in turn.messages))
