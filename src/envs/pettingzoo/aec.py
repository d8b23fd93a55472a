"""A world as an environment of PettingZoo (https://pettingzoo.farama.org/api/aec/), whose interface is not
asynchronous: an event loop in a thread of its own plays it.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Coroutine
from random import Random
from string import printable
from typing import Any, TypeVar

from gymnasium import spaces
from pettingzoo import AECEnv

from ...experience import Split
from ..base import TeamEnv
from ..returned import TaskSource, checked_prompt, checked_step

T = TypeVar("T")


class EventLoopThread:
    """Runs coroutines, all on one event loop, also where the caller's thread has another (a notebook)."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of ``coroutine``; starts the thread where there is none."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="troupe-world", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """End the thread; :meth:`run` starts another."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None


Observation = dict[str, tuple[dict[str, str], ...]]


class AnyText(spaces.Text):
    """All texts of up to ``max_length`` characters; samples are printable ASCII."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=printable)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length


class TeamAEC(AECEnv[str, Observation, str]):
    """``world`` as an AEC environment: each agent's action is its message, of up to ``max_length`` characters.

    An observation is ``{"messages": (...)}``, the agent's prompt as chat messages; of an agent that does not act now,
    its last one, without messages where it has not acted.  Messages of agents that act at the same time are collected,
    and none of these agents sees another's.  An agent earns its local reward and, as all do when a turn ends, the
    team's.  All agents terminate together; ``infos`` has the numbers of the last step, and then ``success``.

    ``reset(seed)`` draws a task of ``split``; ``reset(options={"task": task})`` plays that one.  :meth:`close` ends the
    world's services, which copies of the environment share.  A failing world raises
    :class:`~troupe.envs.base.WorldFailure`.
    """

    def __init__(self, world: TeamEnv, *, split: Split = "test", max_length: int = 4096) -> None:
        super().__init__()
        name = getattr(world, "name", type(world).__name__)
        self.metadata = {"name": name, "render_modes": ["ansi"], "is_parallelizable": False}
        self.render_mode = "ansi"
        self.world, self.split = world, split
        self.possible_agents = list(world.agents)
        self.action_spaces = {agent: AnyText(max_length) for agent in world.agents}
        message = spaces.Dict({"role": AnyText(100), "content": AnyText(10_000_000)})
        prompt = spaces.Dict({"messages": spaces.Sequence(message)})
        self.observation_spaces = dict.fromkeys(world.agents, prompt)
        self._rng, self._events, self._opened = Random(), EventLoopThread(), False
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> AnyText:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        if seed is not None:
            self._rng = Random(seed)
        if not self._opened:
            self._events.run(self.world.open())
            self._opened = True
        task = (options or {}).get("task") or TaskSource(self.world).tasks(self.split, 1, self._rng.randrange(1 << 32))[
            0
        ]
        self._episode = self.world.fork()
        self._episode.reset(task)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._skip_agent_selection = None
        self._observations: dict[str, Observation] = {}
        self._next_agents()

    def _next_agents(self) -> None:
        """Note the prompts of the agents that act now; the first of them is selected."""
        self._messages: dict[str, str] = {}
        for agent in self._episode.next_agents():
            messages = tuple({"role": m["role"], "content": m["content"]} for m in checked_prompt(self._episode, agent))
            self._observations[agent] = {"messages": messages}
        self.agent_selection = next(iter(self._episode.next_agents()), self.possible_agents[0])

    def observe(self, agent: str) -> Observation:
        return self._observations.get(agent, {"messages": ()})

    def step(self, action: str | None) -> None:
        """Raises ``ValueError`` for an action that is not in the action space."""
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)  # None, for such an agent
            return
        if not self.action_spaces[agent].contains(action):
            raise ValueError(f"{agent}: an action is a text of up to {self.action_spaces[agent].max_length} characters")
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._messages[agent] = str(action)
        waiting = [other for other in self._episode.next_agents() if other not in self._messages]
        if waiting:
            self.agent_selection = waiting[0]
        else:
            self._step_world()
            self._accumulate_rewards()

    def _step_world(self) -> None:
        """Hand the collected messages to the world."""
        turn = self._episode.turn
        result = self._events.run(checked_step(self._episode, self._messages))
        team = result.team if result.done or self._episode.turn > turn else 0.0
        for agent in self.agents:
            self.rewards[agent] = float(team + result.local.get(agent, 0.0))
            self.infos[agent] = {**result.info, "success": result.success} if result.done else dict(result.info)
        self.terminations = dict.fromkeys(self.agents, result.done)
        self._next_agents()

    def render(self) -> str:
        """The world's picture, where it offers one."""
        return "\n".join(self._episode.picture())

    def close(self) -> None:
        if self._opened:
            self._events.run(self.world.close())
            self._opened = False
        self._events.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> TeamAEC:
        """A fork: it has its own episode, and the same world."""
        fork = copy.copy(self)
        shared = {"world", "possible_agents", "action_spaces", "observation_spaces", "_events", "_episode"}
        fork.__dict__.update({k: copy.deepcopy(value, memo) for k, value in vars(self).items() if k not in shared})
        if "_episode" in vars(self):
            fork._episode = self._episode.fork()
        return fork
