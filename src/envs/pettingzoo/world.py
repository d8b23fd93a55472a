"""A text game of PettingZoo (https://pettingzoo.farama.org/api/aec/) as a world."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from random import Random
from typing import Any, Self

from gymnasium.spaces import Text
from pettingzoo import AECEnv

from ...errors import ConfigError
from ...experience import Message, Split, Task
from ..base import StepResult, TeamEnv
from ..returned import finite
from ..setting_checks import check_actions, check_agent, check_at_least, check_split, split_ranges
from ..setting_checks import reward_bounds as checked_bounds

SEEDS: Mapping[str, Sequence[int]] = {
    "train": (0, 1_000_000),
    "validation": (1_000_000, 1_100_000),
    "test": (1_100_000, 1_200_000),
}
"""The seeds of each split: from the first number up to, but not including, the second."""

ROUNDING = 1e-6
"""By how much a sum of rewards may miss a bound."""


class PettingZooWorld(TeamEnv):
    """``game``, an AEC environment whose actions are texts (``gymnasium.spaces.Text``) and whose observations are, too.

    An observation is a text, the prompt's user message, or ``{"messages": ...}``, the whole prompt as chat messages.
    ``instructions`` are the system messages of agents.  An action that is not in the action space is replaced by
    ``fallback``, and counted in ``replaced``.

    A turn ends before an agent acts for a second time in it; the episode ends with the game, or after ``horizon``
    turns.  The team's reward is the mean over all agents of the game's rewards since the turn began, and must be within
    ``reward_bounds``; there are no local rewards.  An episode whose return is at least ``solved`` is a success.

    A task is a seed of the game's ``reset``; ``seeds`` has each split's range, disjoint from the others.

    A fork is ``copy.deepcopy`` of the game, so its random state must be part of it.

    Raises ``ValueError``, naming the key, where the game has other spaces, cannot be copied, or has copies that
    influence each other or go different ways; ``step`` raises :class:`~troupe.errors.ConfigError` where a turn's reward
    is out of bounds.
    """

    def __init__(
        self,
        *,
        game: AECEnv,
        horizon: int,
        reward_bounds: Sequence[float],
        solved: float,
        fallback: str = "",
        instructions: Mapping[str, str] | None = None,
        seeds: Mapping[str, Sequence[int]] = SEEDS,
    ) -> None:
        check_at_least("horizon", horizon, 1)
        if not isinstance(game, AECEnv):
            raise ValueError(f"env.game must be an AEC environment of PettingZoo, got {type(game).__name__}")
        self.name, self.agents, self.horizon = str(game), tuple(game.possible_agents), horizon
        self.spaces = {agent: _text_space(game, agent) for agent in self.agents}
        self.reward_bounds, self.solved = checked_bounds(reward_bounds), solved
        for agent, space in self.spaces.items():
            if not space.contains(fallback):
                raise ValueError(f"env.fallback={fallback!r} is not in the action space of {agent}: {space}")
        self.fallback, self.instructions = fallback, dict(instructions or {})
        for agent in self.instructions:
            if agent not in self.agents:
                raise ValueError(f"env.instructions.{agent}: the game's agents are {', '.join(self.agents)}")
        self.seeds = split_ranges("seeds", seeds)
        self._game = game
        self.turn, self._begun, self._return, self._earned = 0, False, 0.0, 0.0
        self._spoken: frozenset[str] = frozenset()
        self._history: tuple[Hashable, ...] = ()
        self._check_copies()

    # ---- tasks ------------------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        check_split(self.name, split)
        if count > len(self.seeds[split]):
            raise ValueError(f"{self.name}: env.seeds.{split} has {len(self.seeds[split])} seeds, not {count}")
        seeds = Random(f"{self.name}/{split}/{seed}").sample(self.seeds[split], count)
        return [Task(f"{self.name}-{each}", split, {"seed": each}) for each in seeds]

    def reset(self, task: Task) -> None:
        self._game.reset(seed=task.data["seed"])
        self.turn, self._begun, self._return, self._earned = 0, True, 0.0, 0.0
        self._spoken, self._history = frozenset(), (task.data["seed"],)
        _step_the_dead(self._game)

    # ---- turns ------------------------------------------------------------------------------------------------------

    def next_agents(self) -> tuple[str, ...]:
        over = not self._begun or self.turn >= self.horizon or not self._game.agents
        return () if over else (self._game.agent_selection,)

    def observe(self, agent: str) -> list[Message]:
        check_agent(self.name, self.agents, agent)
        return self._prompt(self._game, agent)

    def _prompt(self, game: AECEnv, agent: str) -> list[Message]:
        observation = game.observe(agent)
        if isinstance(observation, Mapping) and "messages" in observation:
            messages: list[Message] = [dict(message) for message in observation["messages"]]
        elif isinstance(observation, str):
            messages = [{"role": "user", "content": observation}]
        else:
            raise ValueError(
                f"env.game: {self.name} shows {agent} a {type(observation).__name__}, expected a text or chat messages"
            )
        system = self.instructions.get(agent)
        return messages if system is None else [{"role": "system", "content": system}, *messages]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        check_actions(self.name, self.next_agents(), actions)
        ((agent, text),) = actions.items()
        legal = self.spaces[agent].contains(text)
        action = text if legal else self.fallback
        self._game.step(action)
        team = self._earned + self._total(self._game.rewards) / len(self.agents)
        low, high = self.reward_bounds
        if not low - ROUNDING <= team <= high + ROUNDING:
            raise ConfigError(
                f"env.reward_bounds=[{low}, {high}]: in task {self.name}-{self._history[0]} of {self.name}, turn "
                f"{self.turn} earned {team}; give the bounds of a turn's reward in this game"
            )
        _step_the_dead(self._game)
        self._history, self._spoken = (*self._history, action), self._spoken | {agent}
        if ends_turn := not self._game.agents or self._game.agent_selection in self._spoken:
            self.turn, self._spoken = self.turn + 1, frozenset()
            self._return += team
        self._earned = 0.0 if ends_turn else team
        done = not self.next_agents()
        return StepResult(
            {agent: 0.0}, team, done, done and self._return >= self.solved - ROUNDING, {"replaced": float(not legal)}
        )

    def _total(self, rewards: Mapping[str, Any]) -> float:
        """Raises ``ValueError`` where ``rewards`` are not those of the game's agents, and ``TypeError`` where one is no
        finite number."""
        if not {*self._game.agents} <= rewards.keys() <= {*self.agents}:
            agents = ", ".join(self._game.agents)
            raise ValueError(f"env.game: the rewards of {self.name} are those of {', '.join(rewards)}, not of {agents}")
        return sum(finite(f"env.game: the reward of {agent}", reward) for agent, reward in rewards.items())

    def fork(self) -> Self:
        fork = copy.copy(self)
        fork._game = self._copy(self._game)
        return fork

    def _copy(self, game: AECEnv) -> AECEnv:
        """``game`` with everything that it holds but its action spaces, which are large and do not change."""
        return copy.deepcopy(game, {id(space): space for space in self.spaces.values()})

    def state_key(self) -> Hashable:
        """The task and all actions: two ways to one state have two keys, since a game need not tell its state."""
        return self._history

    # ---- checks -----------------------------------------------------------------------------------------------------

    def _check_copies(self) -> None:
        """Play two copies side by side to the end with ``fallback``; see the class for the errors."""
        game = self._game
        game.reset(seed=self.seeds["train"].start)
        _step_the_dead(game)
        try:
            one, other = self._copy(game), self._copy(game)
        except Exception as error:  # a game may raise any
            raise ValueError(f"env.game: {self.name} cannot be copied, as every fork of a world is: {error}") from error
        before = self._look(game)
        for _ in range(self.horizon * len(self.agents)):
            if self._look(one) != self._look(other):
                raise ValueError(
                    f"env.game: two copies of {self.name} go different ways after the same actions; its random numbers "
                    "must come from a generator that is an attribute of the game"
                )
            if not one.agents:
                break
            for each in (one, other):
                each.step(self.fallback)
                _step_the_dead(each)
        if self._look(game) != before:
            raise ValueError(f"env.game: {self.name} changes when a copy of it is played; it cannot be forked")

    def _look(self, game: AECEnv) -> tuple[Any, ...]:
        """What the agents of ``game`` could tell apart."""
        agents = list(game.agents)
        acting = agents and (game.agent_selection, self._prompt(game, game.agent_selection))
        return agents, acting, dict(game.rewards)


def _text_space(game: AECEnv, agent: Any) -> Text:
    """The action space of ``agent``.  Only ``game`` itself is asked, never a copy: games often cache the answer per
    object, which would keep every copy in memory."""
    if not isinstance(agent, str):
        raise ValueError(f"env.game: agent {agent!r} of {game} must have a text as its name")
    space = game.action_space(agent)
    if not isinstance(space, Text):
        raise ValueError(f"env.game: the action space of {agent} in {game} is {space}, expected gymnasium.spaces.Text")
    return space


def _step_the_dead(game: AECEnv) -> None:
    """Take the steps of agents whose game is over, for whom None is the only action."""
    while game.agents and (game.terminations[game.agent_selection] or game.truncations[game.agent_selection]):
        game.step(None)
