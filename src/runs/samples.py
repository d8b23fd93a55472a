"""Messages of an episode as the console shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..experience import Episode


@dataclass(frozen=True)
class SampleMessage:
    """One message of an episode and its reward; ``saw`` is the end of its prompt, "" where that is not known as text.

    In training ``reward`` is the mixed one, in evaluation the team's.
    """

    turn: int
    agent: str
    saw: str
    said: str
    reward: float

    def line(self, width: int | None = None) -> str:
        """The message in one line, its text cut to ``width`` characters."""
        return f"turn {self.turn}  {self.agent}: {one_line(self.said, width)}  (reward {self.reward:.2f})"


def one_line(text: str, width: int | None = None) -> str:
    """``text`` without line breaks and control characters, which a terminal would obey, cut to ``width`` characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if width is None or len(words) <= width else words[: width - 1] + "…"


def sampled_messages(episode: Episode) -> list[SampleMessage]:
    """The messages on one path of ``episode`` from its start to an end; none where it is lost."""
    messages: list[SampleMessage] = []
    branches, node = episode.branches, 0 if episode.nodes else None
    while node is not None:
        edge = next(each for each in branches[node] if each.child is not None or each.outcome is not None)
        for agent, (index, c) in edge.members.items():
            candidate = episode.nodes[index].candidates[c]
            text = candidate.completion.text
            messages.append(SampleMessage(episode.nodes[index].turn, agent, "", text, candidate.reward))
        node = edge.child
    return messages


def evaluated_messages(messages: Iterable[Mapping[str, Any]]) -> list[SampleMessage]:
    """Those of an episode of an evaluation."""
    return [SampleMessage(m["turn"], m["agent"], m["saw"], m["said"], m["team"]) for m in messages]
