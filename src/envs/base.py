"""The contract of a world with a team in it."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Self

from ..experience import Message, Split, Task
from .drawing import Drawing
from .tool_calls import ToolOffer


class WorldFailure(RuntimeError):
    """The world failed, not the message: its effect is unknown, and it earns no reward, not even 0."""


class SandboxFailure(WorldFailure):
    """The sandbox of a world's programs failed, also after its own retries."""


Listener = Callable[[int, str, float], None]
"""Told a token of a message: its place, text and log-probability; from place 0 again where the message begins anew."""

Skill = Literal["expert", "novice", "flawed"]
"""The skill of a demonstrator, from best to worst."""

ScriptedSkill = Literal[Skill, "silent"]
"""That of a policy that a demonstrator speaks for; ``silent``: empty messages."""


@dataclass(frozen=True)
class StepResult:
    """The rewards and effects of one step of the acting agents.

    ``local`` maps each acting agent to its role-specific reward; ``team`` is the outcome: of a step that ends its turn,
    the team's reward; of another step, that of the messages themselves, such as of a proposal that is carried out on a
    copy, which the team does not earn (``algorithm.reward.team`` says what an agent is paid).
    ``success``: the task is solved, should the episode end here, as a sampler may let it (``stop_above``).  ``info``
    holds numbers for the metrics; each key is averaged over candidates.
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
    forkable: bool = True
    """Whether a fork can go another way than its original; where not, one of the two can be stepped."""
    one_way: str = "it cannot be forked"
    """Why not, for who asks for an algorithm with forks."""
    begins_at_reset: bool = True
    """Whether the agents that act first, and their prompts, are known without :meth:`begin`."""
    session: str = ""
    """In which of a program's sessions the agents act now, as a path: ``a/b`` is a child of ``a``."""
    unscored: Collection[str] = ()
    """The agents whose tokens have no log-probabilities, since another server or nobody samples them."""
    opponents: tuple[str, ...] = ()
    """The agents that play against the team: its reward is their loss."""
    tasks_are_all: bool = False
    """Whether there are so few tasks that each split has them all: nothing is held out."""

    @abstractmethod
    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        """``count`` different tasks of ``split``; the same arguments give the same tasks.

        Raises ``ValueError`` where the split does not hold that many.
        """

    def task_count(self, split: Split) -> int | None:
        """How many tasks ``split`` has; None where they are generated."""
        return None

    @abstractmethod
    def reset(self, task: Task) -> None:
        """Start an episode of ``task``."""

    async def begin(self) -> None:  # noqa: B027 (most worlds know)
        """Wait until the agents that act first are known; after :meth:`reset`, by whoever plays."""

    @abstractmethod
    def next_agents(self) -> tuple[str, ...]:
        """The agents that act now: one (a sequential micro-transition) or several (simultaneous); none when done."""

    @abstractmethod
    def observe(self, agent: str) -> Sequence[Message]:
        """The prompt of ``agent`` now, as chat messages.  Observing changes nothing."""

    @abstractmethod
    async def step(self, actions: Mapping[str, str]) -> StepResult:
        """Take the texts of exactly :meth:`next_agents`; any text is legal input.

        Raises ``ValueError`` where other agents speak, or fewer, or the episode is over, and :class:`WorldFailure`
        where the world cannot tell the effect of the texts; the episode is lost then.
        """

    @abstractmethod
    def fork(self) -> Self:
        """An independent copy whose random state is copied too: siblings meet the same noise."""

    @abstractmethod
    def state_key(self) -> Hashable:
        """Equal for two episodes that cannot be told apart from here on."""

    def anchor_key(self, agent: str) -> Hashable | None:
        """What ``agent`` sees of the world itself, the same whatever the turn, and whatever was said and earned before:
        GiGPO compares the agent's messages where it is equal.  None: where their prompts are equal.
        """
        return None

    async def open(self) -> Mapping[str, bool | int | str]:
        """Start the services that the world needs, such as a sandbox, shared by all forks; facts for the run's summary.

        May be called again.  Raises where a service cannot be started.
        """
        return {}

    async def close(self) -> None:  # noqa: B027 (most worlds hold nothing)
        """Undo :meth:`open`."""

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        """The groups of agents that act within a turn, in their order; the agents of one group act at the same time.

        For the plan of a run and for bounds on its cost.  Unless a world knows better, from the first step of a
        training task: all agents at once, or one by one.
        """
        env = self.fork()
        env.reset(self.tasks("train", 1, 0)[0])
        return (self.agents,) if len(env.next_agents()) == len(self.agents) else tuple((each,) for each in self.agents)

    def picture(self) -> tuple[str, ...]:
        """The world now, drawn for people as rows of characters; empty where there is no board.

        ``#`` wall, ``@`` worker or walker, ``$`` box, ``.`` goal, ``*`` box on a goal, ``+`` worker on a goal.
        """
        return ()

    def draw(self) -> Drawing | None:
        """The world now, drawn for people, see :class:`.drawing.Drawing`; None where there is nothing to draw.

        Drawing changes nothing.
        """
        return None

    def tools(self, agent: str) -> ToolOffer | None:
        """The functions that ``agent`` may call in its message, see :mod:`.tool_calls`; None: it is asked for plain
        text.
        """
        return None

    def listener(self, agent: str) -> Listener | None:
        """Who is told the tokens of the message of ``agent``, while it is written and with it; None: nobody."""
        return None

    def tool_result(self, agent: str) -> str | None:
        """What the call in the message of ``agent`` gave, directly after its step; None where it called nothing."""
        return None

    @property
    def has_demonstrations(self) -> bool:
        """Whether :meth:`demonstration` gives messages."""
        return type(self).demonstration is not TeamEnv.demonstration

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """A message of a demonstrator of this skill in ``agent``'s place, from what ``agent`` sees."""
        raise TypeError(f"{type(self).__name__} has no demonstrations")


@dataclass(frozen=True)
class Decision:
    """An information set: what whoever decides there sees, and the texts between which it chooses."""

    messages: Sequence[Message]
    texts: Sequence[str]


Strategy = Sequence[Sequence[float]]
"""By decision, the probability of each of its texts; what is left of 1 is that of all other texts."""


class TwoSidedGame(TeamEnv):
    """A world of two sides that is small enough to list all decisions, of the team and of its opponents."""

    @abstractmethod
    def decisions(self) -> Sequence[Decision]:
        """All of them, in a fixed order."""

    @abstractmethod
    def exploitability(self, strategy: Strategy) -> float:
        """What a best response to ``strategy`` wins, exactly; 0 for an equilibrium.  Raises ``ValueError`` for what is
        no strategy."""

    @abstractmethod
    def mixture(self, one: Strategy, other: Strategy, share: float) -> Strategy:
        """The strategy that plays an episode as ``other`` with the probability ``share``, else as ``one``."""


class Delegating(TeamEnv):
    """A world that is another one, :attr:`world`, but for what it does itself."""

    world: TeamEnv
    """Forked with it."""

    @property
    def turn(self) -> int:  # type: ignore[override]
        return self.world.turn

    @property
    def session(self) -> str:  # type: ignore[override]
        return self.world.session

    @property
    def unscored(self) -> Collection[str]:
        return self.world.unscored

    @unscored.setter
    def unscored(self, agents: Collection[str]) -> None:
        self.world.unscored = agents

    @property
    def opponents(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.world.opponents

    @property
    def tasks_are_all(self) -> bool:  # type: ignore[override]
        return self.world.tasks_are_all

    async def begin(self) -> None:
        await self.world.begin()

    def next_agents(self) -> tuple[str, ...]:
        return self.world.next_agents()

    def observe(self, agent: str) -> Sequence[Message]:
        return self.world.observe(agent)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        return await self.world.step(actions)

    def fork(self) -> Self:
        fork = copy.copy(self)
        fork.world = self.world.fork()
        return fork

    def picture(self) -> tuple[str, ...]:
        return self.world.picture()

    def draw(self) -> Drawing | None:
        return self.world.draw()

    def tools(self, agent: str) -> ToolOffer | None:
        return self.world.tools(agent)

    def listener(self, agent: str) -> Listener | None:
        return self.world.listener(agent)

    def tool_result(self, agent: str) -> str | None:
        return self.world.tool_result(agent)

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        return self.world.demonstration(agent, rng, skill=skill)
