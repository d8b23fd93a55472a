"""An environment of verifiers (https://github.com/PrimeIntellect-ai/verifiers) as a world.

Verifiers plays the episode: its environment asks the agents, its tools run, its rewards judge.  So the world is a
workflow, whose calls are those of the environment's roles.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from random import Random
from typing import Any, Final

import verifiers.v1 as vf
from pydantic import ValidationError
from verifiers.v1.configs.agent import agent_config_fields

from ...errors import ConfigError
from ...experience import Split, Task
from ..returned import finite
from ..setting_checks import check_split, split_ranges
from ..setting_checks import reward_bounds as checked_bounds
from ..workflow import ClientForAgent, WorkflowResult, WorkflowWorld

HARNESS: Final = "troupe_chat"
LATEST_SPLIT_FIRST: Final[tuple[Split, ...]] = ("test", "validation", "train")
"""Who keeps a task that several splits have."""
QUIET: Final = ("verifiers", "aiohttp.access")
"""Loggers with lines for each request."""
ROUNDING: Final = 1e-6


class VerifiersWorld(WorkflowWorld):
    """``environment``: the id of an installed package with a taskset, and an environment where it has one of its own;
    ``settings`` are those of its configuration (``{"taskset": {...}, "solver": {...}}``).  Its roles are the agents:
    all but those whose client ``settings`` names, such as a judge.

    A role's harness, its program, is :mod:`.harnesses.troupe_chat` where ``settings`` name none, and it runs on this
    machine.  ``rows`` has each split's tasks, from the first row of the taskset up to, but not including, the second.

    The team's reward is the mean, over the traces of its agents, of a trace's reward; it must be within
    ``reward_bounds``.  ``horizon``: the most messages of an agent, where its role sets no ``max_turns``.  ``info`` has
    each reward and metric, by role where there are several.

    It cannot be forked, see :attr:`one_way`, but where it is ``pure``, as any workflow.

    Raises ``ValueError`` naming the key, :class:`~troupe.errors.ConfigError` where a reward is out of bounds, and
    :class:`..workflow.world.WorkflowFailure` where the environment fails, with its name and the task.
    """

    one_way = (
        "what an environment of verifiers holds, such as its processes and servers, has no copy; with env.pure=true "
        "one that depends on its task and its replies alone is played again"
    )

    def __init__(
        self,
        *,
        environment: str,
        rows: Mapping[str, Sequence[int]],
        reward_bounds: Sequence[float],
        settings: Mapping[str, Any] | None = None,
        horizon: int = 8,
        limit_s: float = 60.0,
        pure: bool = False,
        success_at: float = 1.0,
        tools: Any = None,
    ) -> None:
        self.environment, self.name = environment, f"verifiers {environment}"
        self.low, self.high = checked_bounds(reward_bounds)
        self._env, agents = _load(environment, settings or {}, horizon)
        self._rows = split_ranges("rows", rows)
        self._tasks_by_split: dict[Split, dict[str, int]] | None = None
        self._loaded: list[Any] = []
        super().__init__(
            workflow=self._play,
            tasks=self._drawn,
            agents=agents,
            horizon=horizon,
            limit_s=limit_s,
            pure=pure,
            success_at=success_at,
            tools=tools,
        )

    async def open(self) -> Mapping[str, bool | int | str]:
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
        return await super().open()

    async def close(self) -> None:
        os.environ.pop(self._key_variable, None)
        await super().close()

    @property
    def _key_variable(self) -> str:
        """Of the gateway's key, which verifiers reads there alone; its programs do not get what has such a name."""
        return f"TROUPE_{blake2b(self._service.key.encode(), digest_size=6).hexdigest()}_API_KEY"

    # ---- tasks -----------------------------------------------------------------------------------------------------

    def task_count(self, split: Split) -> int:
        return len(self._by_split[split])

    def _drawn(self, split: Split, count: int, seed: int) -> list[Task]:
        check_split(self.name, split)
        rows = self._by_split[split]
        if count > len(rows):
            raise ValueError(
                f"env.rows.{split} of {self.environment} has {len(rows)} different tasks that no split before it has, "
                f"not {count}"
            )
        keys = Random(f"{self.environment}/{split}/{seed}").sample(sorted(rows), count)
        return [Task(f"{self.environment}-{key}", split, {"row": rows[key], "key": key}) for key in keys]

    @property
    def _by_split(self) -> dict[Split, dict[str, int]]:
        """By split and content, a row of the taskset; read on first use."""
        if self._tasks_by_split is None:
            end = max(rows.stop for rows in self._rows.values())
            self._loaded = list(islice(iter(self._env.taskset), end))
            if len(self._loaded) < end:
                raise ValueError(f"env.rows: the taskset of {self.environment} has {len(self._loaded)} rows, not {end}")
            keys, taken = [_content(task) for task in self._loaded], set[str]()
            self._tasks_by_split = {}
            for split in LATEST_SPLIT_FIRST:
                rows = {keys[row]: row for row in reversed(self._rows[split]) if keys[row] not in taken}
                self._tasks_by_split[split] = rows
                taken |= rows.keys()
        return self._tasks_by_split

    # ---- an episode, in a thread and an event loop of its own --------------------------------------------------------

    async def _play(self, task: Task, client_for_agent: ClientForAgent) -> WorkflowResult:
        assert self._by_split
        client = client_for_agent(self.agents[0])  # all have one address
        os.environ[self._key_variable] = client.api_key
        endpoint = vf.EvalClientConfig(base_url=client.base_url, api_key_var=self._key_variable)
        env = copy.copy(self._env)  # of this episode alone: its servers belong to one event loop
        context = vf.ModelContext(model=self.agents[0], client=endpoint)
        async with env.serving():
            episode = await env.run_episode(self._loaded[task.data["row"]], context)
        return self._result(task, episode)

    def _result(self, task: Task, episode: vf.Episode) -> WorkflowResult:
        errors = [*episode.errors, *(error for trace in episode.traces if not trace.ok for error in trace.errors)]
        if errors or not episode.ok:
            told = "; ".join(f"{each.type}: {each.message}" for each in errors) or "it did not end"
            raise RuntimeError(f"{self.environment} failed in row {task.data['row']}: {told}")
        traces = [trace for trace in episode.traces if trace.agent.name in self.agents]
        place = f"{self.environment}, row {task.data['row']}"
        team = sum(finite(f"the reward of {place}", trace.reward) for trace in traces) / max(len(traces), 1)
        if not self.low - ROUNDING <= team <= self.high + ROUNDING:
            raise ConfigError(
                f"env.reward_bounds=[{self.low:g}, {self.high:g}]: the reward of {place} is {team:g}; give the bounds "
                "of an episode's reward"
            )
        return WorkflowResult(team, info=self._numbers(traces))

    def _numbers(self, traces: Sequence[Any]) -> dict[str, float]:
        """Means over traces."""
        values: dict[str, list[float]] = {}
        for trace in traces:
            role = f"{trace.agent.name}_" if len(self.agents) > 1 else ""
            rewards = {name: each.score for name, each in trace.rewards.items() if each is not None}
            for name, value in {**trace.metrics, **rewards}.items():
                if value is not None:
                    values.setdefault(f"vf_{role}{name}", []).append(value)
        return {name: sum(each) / len(each) for name, each in values.items()}


def _load(environment: str, settings: Mapping[str, Any], horizon: int) -> tuple[vf.Env[Any], tuple[str, ...]]:
    """The environment, and its roles that are agents.  Raises ``ValueError``."""
    if not environment:
        raise ValueError("env.environment must be the id of an installed environment, got ''")
    try:
        taskset = {**settings.get("taskset", {}), "id": environment}
        kind = vf.env_config_type(environment, settings.get("id", ""))
        roles = agent_config_fields(kind())
        given = {name: dict(settings.get(name) or {}) for name in roles}
        agents = tuple(name for name, each in given.items() if not each.get("client"))
        ours = {
            name: {"model": name, "max_turns": horizon, "runtime": {"type": "subprocess"}, "harness": {"id": HARNESS}}
            for name in agents
        }
        config = {**settings, "taskset": taskset, **{name: {**ours.get(name, {}), **given[name]} for name in roles}}
        env = vf.load_environment(vf.resolve_env_config(config))
    except ModuleNotFoundError as error:
        raise ValueError(f"env.environment={environment}: {error}") from error
    except (ValidationError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"env.environment={environment}: {_explained(environment, error)}") from error
    for name in agents:
        if given[name].get("model"):
            raise ValueError(f"env.settings.{name}.model: a role with a model of its own needs a client, too")
    if not agents:
        raise ValueError(f"env.environment={environment}: every role has a client of its own; none is an agent")
    return env, agents


def _explained(environment: str, error: Exception) -> str:
    """``error``, where the package has the interface of verifiers before 0.4 with what to do."""
    module = vf.import_taskset(environment)
    if hasattr(module, "load_environment"):
        return (
            "it has load_environment, the interface of verifiers before 0.4, which 0.4 does not have any more; play it "
            "in a function of your own, env.workflow (docs/gateway.md)"
        )
    return str(error)


def _content(task: Any) -> str:
    """A key of what the task says, whatever its row."""
    return blake2b(task.data.model_copy(update={"idx": None}).model_dump_json().encode(), digest_size=8).hexdigest()
