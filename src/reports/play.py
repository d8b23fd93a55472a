"""An episode on the console while it is played: the world's picture and each agent's message."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ..errors import visible
from ..evaluation.episodes import EpisodeResult
from ..experience import Message
from .console import ending, message_line
from .episodes import plain


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
