"""Turn taking: worlds whose agents act one after the other in a fixed order, or at the same time; and the orders in
which two agents write the parts of one work, MAGRPO's (arXiv 2508.04652) and those of its baselines.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Self, get_args

from ..experience import Message
from .base import StepResult, TeamEnv
from .execution import Executor
from .fences import spoken
from .judging import guarded, judging
from .setting_checks import check_actions, check_agent, check_at_least, check_choice
from .tool_calls import ANSWER, READ, UNREADABLE, Tool, ToolFormat, ToolOffer

Order = Literal["simultaneous", "sequential", "discussion"]
"""``simultaneous``: neither sees what the other writes in this turn.  ``sequential``: the second sees the first's.
``discussion``: both write drafts in the first turn, which are not judged; from the second turn on each sees what its
partner wrote in the turn before."""


def stages_of(world: str, order: Order, agents: tuple[str, ...], horizon: int) -> tuple[tuple[str, ...], ...]:
    """The stages of a turn.  Raises ``ValueError`` for an unknown order, one agent alone that has an order, and a
    discussion without a second turn."""
    check_choice(world, "order", order, get_args(Order))
    if order != "simultaneous" and len(agents) == 1:
        raise ValueError(f"env.order={order} is of two agents, and env.team=solo has one")
    if order == "discussion" and horizon < 2:
        raise ValueError("env.order=discussion needs env.horizon=2 at least: the first turn is for drafts")
    return tuple((agent,) for agent in agents) if order == "sequential" else (agents,)


MAX_HORIZON = 100_000
"""Turns; a run's budget lists the steps of an episode."""


class TurnTakingWorld(TeamEnv):
    """Counts turns and schedules agents; a world adds its tasks, its prompts, and the effects of messages.

    ``stages`` are the groups of agents that act within a turn, in their order; the agents of one group act at the same
    time.  ``execution`` runs the agents' programs, where they write some.  ``tools``: the form in which agents call the
    functions of :meth:`_tools`, with a request at the end of the system message; None: they write plain text, see
    :mod:`.tool_calls`.  Thoughts (:func:`.fences.spoken`) are neither read nor shown to others.  A step counts the
    readers and judges that raised on its texts, see :func:`.judging.guarded`.

    No field may be changed in place, and the world draws no noise: a fork is a shallow copy.
    """

    name: str

    def __init__(
        self,
        *,
        stages: Sequence[tuple[str, ...]],
        horizon: int,
        execution: Executor | None = None,
        tools: ToolFormat | None = None,
    ) -> None:
        check_at_least("horizon", horizon, 1)
        if horizon > MAX_HORIZON:
            raise ValueError(f"env.horizon must be at most {MAX_HORIZON:,}, got {horizon}")
        self._stages = tuple(stages)
        self.agents = tuple(agent for stage in self._stages for agent in stage)
        self.horizon = horizon
        self.execution = execution
        if tools is not None:
            check_choice(self.name, "tools", tools, get_args(ToolFormat))
        self.tool_format = tools
        self._calls: Mapping[str, bool] = {}
        self.turn, self._stage, self._done = 0, 0, True  # until there is a task
        self._best = 0.0

    # ---- for the world to add --------------------------------------------------------------------------------------

    @abstractmethod
    def _prompt(self, agent: str) -> list[Message]:
        """What ``agent`` sees now."""

    @abstractmethod
    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        """The effect of a text of each acting agent; ends with :meth:`_next_stage` or :meth:`_next_turn`."""

    @abstractmethod
    def _state(self) -> tuple[Hashable, ...]:
        """The state apart from whose turn it is."""

    def _tools(self, agent: str) -> Sequence[Tool]:
        """The functions that ``agent`` may call where ``env.tools`` names a form; a call is the text that it writes."""
        return (ANSWER,)

    def _tool_report(self, agent: str) -> str:
        """What the call of ``agent``, whose step was the last one, gave; nothing that its prompts do not show."""
        return READ

    # ---- turns ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin an episode."""
        self.turn, self._stage, self._done, self._best, self._calls = 0, 0, False, 0.0, {}

    def _next_stage(self) -> None:
        """The next agents of this turn act."""
        self._stage += 1

    def _next_turn(self, *, done: bool = False) -> None:
        """End the turn, and the episode if ``done`` or at the horizon."""
        self.turn, self._stage = self.turn + 1, 0
        self._done = done or self.turn >= self.horizon

    def _gain(self, score: float) -> float:
        """How much ``score`` is above the best of the episode before it: such rewards sum to the best score."""
        gain = max(0.0, score - self._best)
        self._best = max(self._best, score)
        return gain

    # ---- the contract ---------------------------------------------------------------------------------------------

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        return self._stages

    def next_agents(self) -> tuple[str, ...]:
        return () if self._done else self._stages[self._stage]

    def observe(self, agent: str) -> list[Message]:
        check_agent(self.name, self.agents, agent)
        prompt, offer = self._prompt(agent), self.tools(agent)
        return prompt if offer is None else _with_request(prompt, offer.request)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        """As :meth:`.base.TeamEnv.step`; every text of an agent enters here: its thoughts go, its calls are read."""
        check_actions(self.name, self.next_agents(), actions)
        with judging() as errors:
            texts, info = self._read_calls({agent: spoken(text) for agent, text in actions.items()})
            result = await self._act(texts)
            return errors.added_to(replace(result, info={**result.info, **info}) if info else result)

    def _read_calls(self, actions: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, float]]:
        """The texts that the world reads, and the share of calls, and of malformed ones, among the messages of agents
        with tools.  A malformed call is silence."""
        offers = {agent: offer for agent in actions if (offer := self.tools(agent)) is not None}
        texts = {agent: guarded(None, offer.read, actions[agent]) for agent, offer in offers.items()}
        self._calls = {
            agent: texts[agent] is not None for agent, offer in offers.items() if offer.calls(actions[agent])
        }
        if not offers:
            return actions, {}
        malformed = sum(not whole for whole in self._calls.values())
        info = {"tool_calls": len(self._calls) / len(offers), "malformed_calls": malformed / len(offers)}
        return {**actions, **{agent: text or "" for agent, text in texts.items()}}, info

    def tools(self, agent: str) -> ToolOffer | None:
        tools = tuple(self._tools(agent))
        return ToolOffer(self.tool_format, tools) if tools and self.tool_format else None

    def _said(self, tool: Tool, text: str) -> str:
        """A message whose text is ``text``, for worked examples: a call of ``tool``, where agents call functions."""
        return text if self.tool_format is None else ToolOffer(self.tool_format, (tool,)).say(text)

    def tool_result(self, agent: str) -> str | None:
        if agent not in self._calls:
            return None
        return self._tool_report(agent) if self._calls[agent] else UNREADABLE

    def fork(self) -> Self:
        return copy.copy(self)

    def state_key(self) -> Hashable:
        return (self.turn, self._stage, self._done, self._best, tuple(self._calls.items()), *self._state())

    async def open(self) -> Mapping[str, bool | int | str]:
        return {} if self.execution is None else await self.execution.open()

    async def close(self) -> None:
        if self.execution is not None:
            await self.execution.close()


def _with_request(prompt: Sequence[Message], request: str) -> list[Message]:
    """``prompt`` with ``request`` at the end of its system message."""
    if not prompt or prompt[0]["role"] != "system":
        return [{"role": "system", "content": request}, *prompt]
    return [{**prompt[0], "content": f"{prompt[0]['content']}\n\n{request}"}, *prompt[1:]]


def chat(system: str, user: str) -> list[Message]:
    """A prompt of a system message and a user message."""
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
