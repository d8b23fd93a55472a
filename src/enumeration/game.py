"""The games: two agents, two turns, two actions, and tabular policies."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from math import exp
from random import Random
from typing import Self

from ..envs.base import StepResult, TeamEnv
from ..experience import Message, Split, Task
from ..rollout.engines.requests import derive

TEXTS = ("no", "yes please")
"""The actions; the second has more tokens, so that a division by the length is visible."""

FIRST = {(0, 0): 0.0, (0, 1): 0.25, (1, 0): 0.1, (1, 1): 1.0}
"""The team's reward of the first turn, by (tool's, planner's) action; 1.0 ends the episode."""
OPPOSED = {(0, 0): 0.25, (0, 1): 0.1, (1, 0): 0.0, (1, 1): 1.0}
"""The same where intermediate rewards are opposed to success."""
SECOND = {(0, 0): 0.05, (0, 1): 0.6, (1, 0): 0.35, (1, 1): 1.0}
"""Of the second turn; a joint action repeated from the first turn earns half."""
ECHO = {"00": (0.3, True), "01": (0.1, False), "10": (0.25, False), "11": (0.6, True)}
"""The team's reward of the first turn of :class:`EchoGame`, by its actions, and whether the episode ends."""
THIRD = {"010": 0.0, "011": 1.0, "100": 0.85, "101": 0.15}
"""Of its third message, which ends the episode."""
EASE = {"easy": 0.8, "hard": -0.8}
"""By task, the mean log-odds of the second action."""


class Game(TeamEnv):
    """``tool`` and ``plan`` act one after the other, or ``at_once``, in each of two turns.

    An episode succeeds, and ends, with the joint action (1, 1).  Each sees the task and all actions before.  The team's
    reward of a message that does not end a turn is a judgement of the message; the team's return does not contain it.
    Intermediate rewards, that judgement among them, favour the second action, of which success is made; ``opposed``
    ones the first.  With ``early`` ends (0, 0) ends the episode, too.

    No two joint actions in one state have one reward, so that no sampler breaks a tie between different actions.  Other
    texts than ``TEXTS`` are an error.
    """

    agents = ("tool", "plan")
    horizon = 2

    def __init__(self, *, at_once: bool = False, opposed: bool = False, early: bool = False) -> None:
        self.at_once, self.opposed, self.early = at_once, opposed, early
        self.turn, self.done, self.task_id, self.actions = 0, True, "", ""

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return [Task(name, split, {}) for name in list(EASE)[:count]]

    def reset(self, task: Task) -> None:
        self.turn, self.done, self.task_id, self.actions = 0, False, task.task_id, ""

    def next_agents(self) -> tuple[str, ...]:
        if self.done:
            return ()
        return self.agents if self.at_once else (self.agents[len(self.actions) % 2],)

    def observe(self, agent: str) -> Sequence[Message]:
        return [{"role": "user", "content": f"{self.task_id} {agent} {self.actions}"}]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        self.actions += "".join(str(TEXTS.index(actions[agent])) for agent in self.next_agents())
        local = dict.fromkeys(actions, 0.0)
        if len(self.actions) % 2:
            return StepResult(local, 0.4 * (int(self.actions[-1]) != self.opposed), False, False)
        team, self.turn = self._reward(), self.turn + 1
        success = team == 1.0
        self.done = success or self.turn == self.horizon or (self.early and self.actions[-2:] == "00")
        return StepResult(local, team, self.done, success)

    def _reward(self) -> float:
        tool, plan = map(int, self.actions[-2:])
        if self.turn == 0:
            return (OPPOSED if self.opposed else FIRST)[tool, plan]
        return SECOND[tool, plan] * (0.5 if self.actions[:2] == self.actions[2:] else 1.0)

    def fork(self) -> Self:
        return copy.copy(self)

    def state_key(self) -> Hashable:
        return (self.turn, self.task_id, self.actions)

    def anchor_key(self, agent: str) -> Hashable:
        """The actions of earlier turns: not what the partner said in this one."""
        return self.actions[: 2 * self.turn]


class EchoGame(Game):
    """``tool``, ``plan`` and, where the planner did not repeat its action, ``tool`` once more.

    So an episode has two messages or three, and never the four of its horizon: what happens decides how many steps
    there are.  The agents act one after the other.  An episode succeeds with a reward of 1.
    """

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        (agent,) = self.next_agents()
        self.actions += str(TEXTS.index(actions[agent]))
        if len(self.actions) == 1:
            team = 0.4 * int(self.actions)  # a judgement of the message
        elif len(self.actions) == 2:
            (team, self.done), self.turn = ECHO[self.actions], 1
        else:
            team, self.done = THIRD[self.actions], True
        return StepResult({agent: 0.0}, team, self.done, team == 1.0)


@cache
def log_odds(prompt: str) -> float:
    """Of the second action against the first, after ``prompt``: different for every prompt."""
    return EASE[prompt.split()[0]] + Random(derive(prompt)).uniform(-0.7, 0.7)


@cache
def probability(prompt: str, action: int) -> float:
    return 1 / (1 + exp(-log_odds(prompt) if action else log_odds(prompt)))
