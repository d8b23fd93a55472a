"""A workflow as a world: the calls of a program are the turns of a team."""

from __future__ import annotations

import copy
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, get_args
from uuid import uuid4

from ...errors import ConfigError, check_above_zero, check_whole
from ...experience import Message, Split, Task
from ...gateway.protocol import ChatReply
from ..base import Listener, StepResult, TeamEnv, WorldFailure
from ..setting_checks import check_actions, check_agent, check_choice
from ..tool_calls import ToolFormat, ToolOffer
from .client import WorkflowResult
from .messages import Identity, identity, listener, offer, prompt, reply, unmatched
from .run import Event, PendingCall, Raised, WorkflowRun
from .service import Service


class WorkflowFailure(WorldFailure):
    """A workflow that raised, did not go on in time, or went another way when it was played again."""


@dataclass(frozen=True)
class Said:
    """One answered call."""

    key: str
    """Of its request."""
    agent: str
    text: str
    reply: ChatReply


class Lease:
    """Held by all forks that may go on with ``run``, which ends with the last of them."""

    def __init__(self, run: WorkflowRun) -> None:
        self.run, self.key = run, uuid4().int
        weakref.finalize(self, run.close)


class WorkflowWorld(TeamEnv):
    """``workflow(task, client_for_agent)``, a function, async or not, that returns a reward (see
    :class:`.client.WorkflowResult`).  Its calls go to the gateway, and policies answer them.

    Each call is a step.  ``turn`` is the number of earlier calls of the same agent; calls at the same time are
    answered in the order in which they come.  The episode ends with the workflow, or with call ``horizon + 1`` of an
    agent, unsuccessful.

    ``tasks(split, count, seed)`` is the user's, too.  ``limit_s``: seconds that the workflow may take from a reply to
    its next call.  ``pure``: it depends on its task and its replies alone, so that a fork can play them again and go
    another way; :class:`ConfigError` where a call then differs.  ``tools``: the form in which the policies call
    functions, see :mod:`..tool_calls`; None: requests with functions are an error.
    """

    name = "workflow"
    one_way = "with env.pure=true a workflow is a pure function of its task and its replies, which can be played again"
    begins_at_reset = False

    def __init__(
        self,
        *,
        workflow: Callable[..., Any],
        tasks: Callable[..., Sequence[Task]],
        agents: Sequence[str],
        horizon: int = 8,
        limit_s: float = 60.0,
        pure: bool = False,
        success_at: float = 1.0,
        tools: ToolFormat | None = None,
    ) -> None:
        for key, function in (("workflow", workflow), ("tasks", tasks)):
            if not callable(function):
                raise ValueError(f"env.{key} must be a function: give it `_target_` and `_partial_: true`")
        if not agents or len(set(agents)) < len(agents):
            raise ValueError(f"env.agents must be different names, got {list(agents)}")
        check_whole("env.horizon", horizon, 1)
        check_above_zero("env.limit_s", limit_s)
        if tools is not None:
            check_choice(self.name, "tools", tools, get_args(ToolFormat))
        self.agents, self.horizon, self.forkable, self.success_at = tuple(agents), horizon, pure, success_at
        self._workflow, self._tasks, self._limit_s, self._format = workflow, tasks, limit_s, tools
        self._service = Service(self.agents)
        self._task: Task | None = None
        self._forget()

    def _forget(self) -> None:
        self._said: tuple[Said, ...] = ()
        self._lease: Lease | None = None
        self._call: PendingCall | None = None
        self._done = self._task is None
        self._unpaid = 0.0  # team rewards of messages since the last one that ended a turn

    # ---- tasks and services ----------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        tasks = list(self._tasks(split, count, seed))
        if len(tasks) != count or len({task.task_id for task in tasks}) != count:
            raise ValueError(
                f"env.tasks gave {len({task.task_id for task in tasks})} different {split} tasks, not {count}"
            )
        return tasks

    async def open(self) -> Mapping[str, bool | int | str]:
        self._service.start()
        return {}

    async def close(self) -> None:
        self._service.stop()

    # ---- an episode ------------------------------------------------------------------------------------------------

    @property
    def turn(self) -> int:  # type: ignore[override]  # follows from what was said
        counts = Counter(said.agent for said in self._said)
        return counts[self._call.request.agent] if self._call is not None else max(counts.values(), default=0)

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        return tuple((agent,) for agent in self.agents)

    def reset(self, task: Task) -> None:
        self._task = task
        self._forget()

    async def begin(self) -> None:
        if self._call is None and not self._done:
            run = self._start()
            self._lease = Lease(run)
            self._call = self._called(run, await self._next(run))

    def next_agents(self) -> tuple[str, ...]:
        if self._done:
            return ()
        if self._call is None:
            raise RuntimeError("a workflow's first agent is known after `await env.begin()`")
        return (self._call.request.agent,)

    def observe(self, agent: str) -> list[Message]:
        check_agent(self.name, self.agents, agent)
        if self._call is None or self._call.request.agent != agent:
            return []
        return prompt(self._call.request.messages, self._texts(), self._format)

    def _texts(self) -> dict[Identity, str]:
        """The texts that policies have written, by their replies."""
        return {identity(each.reply): each.text for each in self._said}

    def tools(self, agent: str) -> ToolOffer | None:
        call = self._call
        return None if call is None or call.request.agent != agent else offer(call.request, self._format)

    @property
    def session(self) -> str:  # type: ignore[override]
        return "" if self._call is None else self._call.request.session

    def listener(self, agent: str) -> Listener | None:
        """To the calls that are streamed or ask for log-probabilities.  Forks share a call, and go on differently."""
        call = self._call
        if call is None or call.request.agent != agent or not (call.request.stream or call.request.logprobs):
            return None
        return (lambda *_: None) if self.forkable else listener(call.write, call.request, self._format)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        check_actions(self.name, self.next_agents(), actions)
        ((agent, text),), turn = actions.items(), self.turn
        run, call = await self._own_run()
        changed = unmatched(call.request.messages, self._texts())
        answer, malformed = reply(text, call.request, self._format, len(self._said))
        self._said = run.said = (*self._said, Said(call.request.key, agent, text, answer))
        run.reply(call, answer)
        event = await self._next(run)
        self._call, result = None, WorkflowResult(0.0)
        if isinstance(event, WorkflowResult):
            self._done, result = True, event
        else:
            self._call = self._called(run, event)
            self._done = self.turn >= self.horizon
        earned, refused = run.drain(agent)
        assert self._task is not None
        refused += self._service.carried(self._task.split, agent)
        info = {"refused_requests": float(refused), "unmatched_messages": float(changed)}
        info |= {"malformed_calls": float(malformed), **earned.info}
        if self._done:
            run.close()
            self._call = self._lease = None
            ended = isinstance(event, WorkflowResult)
            success = result.success if result.success is not None else ended and result.team >= self.success_at
            info |= {"too_many_calls": float(not ended), **result.info}
            team = self._paid(earned.team + result.team, ends_turn=True)
            return StepResult({agent: earned.local}, team, True, success, info)
        team = self._paid(earned.team, ends_turn=self.turn > turn)
        return StepResult({agent: earned.local}, team, False, False, info)

    def _paid(self, team: float, *, ends_turn: bool) -> float:
        """The outcome of a message that has earned ``team``.  The return of an episode has those of messages that
        end a turn, so that these are paid what the messages before have earned, too.  To a sampler that tries several
        messages, which a fork allows, a message's own reward is its judgement.
        """
        if ends_turn:
            team, self._unpaid = team + self._unpaid, 0.0
            return team
        self._unpaid += team
        return team if self.forkable else 0.0

    def fork(self) -> Self:
        return copy.copy(self)

    def state_key(self) -> Hashable:
        run = None if self.forkable or not self._said or self._lease is None else self._lease.key
        return (
            self._task and self._task.task_id,
            self._done,
            self._unpaid,
            run,
            *((each.key, each.text) for each in self._said),
        )

    # ---- runs ------------------------------------------------------------------------------------------------------

    def _start(self) -> WorkflowRun:
        assert self._task is not None
        return WorkflowRun(self._service, self._workflow, self._task, self.agents, self._said, self.unscored)

    async def _own_run(self) -> tuple[WorkflowRun, PendingCall]:
        """The run of this episode, and its call that waits; where a fork went on with it, another one that is played
        to the same place.
        """
        assert self._lease is not None and self._call is not None
        if self._lease.run.said is self._said:
            return self._lease.run, self._call
        if not self.forkable:
            raise ConfigError("env.pure=false: a workflow that is not a pure function of its replies cannot be forked")
        run = self._start()
        self._lease, key = Lease(run), self._call.request.key
        for said in self._said:
            call = self._called(run, await self._next(run), said.key)
            run.reply(call, said.reply)
        self._call = self._called(run, await self._next(run), key)
        run.forget()
        return run, self._call

    async def _next(self, run: WorkflowRun) -> Event:
        try:
            event = await run.next(self._limit_s)
        except TimeoutError as error:
            run.close(lost=True)
            raise WorkflowFailure(
                f"the workflow did neither call an agent nor end within env.limit_s={self._limit_s:g}; {self._place()}"
            ) from error
        if isinstance(event, Raised) and isinstance(event.error, ConfigError):  # every episode would end so
            run.close(lost=True)
            raise event.error
        return event

    def _called(self, run: WorkflowRun, event: Event, key: str | None = None) -> PendingCall:
        """``event``, which is to be a call, that of ``key`` where one is given."""
        if isinstance(event, PendingCall) and key in (None, event.request.key):
            if event.request.tools and self._format is None:
                run.close()
                raise ConfigError(
                    "the workflow offers functions: give env.tools=hermes or llama, as the policies call them"
                )
            return event
        run.close(lost=True)
        if isinstance(event, Raised):
            raise WorkflowFailure(f"the workflow raised {_described(event.error)}; {self._place()}") from event.error
        if key is None:
            raise WorkflowFailure(f"the workflow ended without a call; {self._place()}")
        raise ConfigError(
            "env.pure=true, but the workflow went another way when it was played again with the same replies: "
            f"{self._place()}; take clocks, chance and shared state out of it, or give env.pure=false and an "
            "algorithm with chains"
        )

    def _place(self) -> str:
        last = f"after reply {len(self._said)}, of agent '{self._said[-1].agent}'" if self._said else "before any reply"
        return last


def _described(error: BaseException) -> str:
    """The error with the line that raised it: the last of the workflow's own code that can be told."""
    traceback, place = error.__traceback__, ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if "site-packages" not in file and traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in (
            "troupe",
            "asyncio",
        ):
            place = f" ({file}:{traceback.tb_lineno})"
        traceback = traceback.tb_next
    return f"{type(error).__name__}: {error}{place}"
