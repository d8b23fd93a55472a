"""The contract of a world with a team in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Self

from ..experience import Message, Split, Task


class WorldFailure(RuntimeError):
    """The world failed, not the message: nothing is known about what was said, and it earns no reward, not even 0."""


Skill = Literal["expert", "novice", "bungler"]
"""How good a demonstrator is, from best to worst."""


@dataclass(frozen=True)
class StepResult:
    """What one step of the acting agents earned and caused.

    ``local`` maps each acting agent to its role-specific reward; ``team`` is the reward that the team's aim gives to
    this step.  ``info`` holds numbers for the metrics; each key is averaged over candidates.
    """

    local: Mapping[str, float]
    team: float
    done: bool
    success: bool
    info: Mapping[str, float] = field(default_factory=dict)


class TeamEnv(ABC):
    """A world with a team in it.  It knows no engine, no tokenizer and no policy.

    An instance is a prototype until :meth:`reset`; then it is one episode.  ``agents`` are the roles in the order in
    which they act within a turn; ``horizon`` is T, the most turns an episode lasts; ``turn`` counts from 0.
    """

    agents: tuple[str, ...]
    horizon: int
    turn: int

    @abstractmethod
    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        """``count`` different tasks of ``split``; the same arguments give the same tasks.

        Raises ``ValueError`` where the split does not hold that many.
        """

    @abstractmethod
    def reset(self, task: Task) -> None:
        """Start an episode of ``task``."""

    @abstractmethod
    def next_agents(self) -> tuple[str, ...]:
        """Who acts now: one agent (a sequential micro-transition) or several (simultaneous); none when done."""

    @abstractmethod
    def observe(self, agent: str) -> Sequence[Message]:
        """What ``agent`` is told now, as chat messages.  Observing changes nothing."""

    @abstractmethod
    async def step(self, actions: Mapping[str, str]) -> StepResult:
        """Take the texts of exactly :meth:`next_agents`; any text is legal input.

        Raises ``ValueError`` where other agents speak, or fewer, or the episode is over, and :class:`WorldFailure`
        where the world cannot tell what the texts do; the episode is lost then.
        """

    @abstractmethod
    def fork(self) -> Self:
        """An independent copy whose random state is copied too: siblings meet the same noise."""

    @abstractmethod
    def state_key(self) -> Hashable:
        """Equal for two episodes that cannot be told apart from here on."""

    async def open(self) -> Mapping[str, bool | int | str]:
        """Make ready what the world needs outside of itself, shared by all forks; what it is, for the run's summary.

        May be called again.  Raises where what is needed cannot be had.
        """
        return {}

    async def close(self) -> None:  # noqa: B027 (most worlds hold nothing)
        """Undo :meth:`open`."""

    def opening(self) -> tuple[str, ...]:
        """Who acts first in an episode: of a training task, unless a world knows without one, as where tasks are data
        that a plan of a run does not need.
        """
        env = self.fork()
        env.reset(self.tasks("train", 1, 0)[0])
        return env.next_agents()

    def picture(self) -> tuple[str, ...]:
        """The world as it is, drawn for people as rows of characters; nothing where there is no board.

        ``#`` wall, ``@`` who walks, ``$`` box, ``.`` goal, ``*`` box on a goal, ``+`` who walks on a goal.
        """
        return ()

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """What a demonstrator of this skill in ``agent``'s place, seeing what it sees, would say."""
        raise TypeError(f"{type(self).__name__} has no demonstrations")
