"""One run of a workflow: the user's function in a thread of its own, its calls one after the other."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from ...experience import Task
from ...gateway.guard import RefusedError
from ...gateway.protocol import ChatReply, ChatRequest, Draft, Token, check_scored, read_request
from ..returned import finite
from .client import AgentClient, WorkflowResult, finite_info
from .service import Service


@dataclass(eq=False)
class PendingCall:
    """A call of an agent that waits for its reply; ``loop`` is the server's, or of the workflow itself."""

    request: ChatRequest
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[ChatReply]
    draft: Draft = field(default_factory=Draft)
    """Of who asked last."""

    def write(self, place: int, token: Token, text: str) -> None:
        """See :meth:`...gateway.protocol.Draft.write`; from any thread."""
        with suppress(RuntimeError):  # the server has ended
            self.loop.call_soon_threadsafe(lambda: self.draft.write(place, token, text))

    def settle(self, reply: ChatReply | RefusedError) -> None:
        """Answer; from any thread."""

        def put() -> None:
            if self.future.done():
                return
            if isinstance(reply, RefusedError):
                self.future.set_exception(reply)
                self.future.exception()  # retrieved, also where nobody waits any more
            else:
                self.future.set_result(reply)

        with suppress(RuntimeError):  # the server has ended
            self.loop.call_soon_threadsafe(put)


@dataclass(frozen=True)
class Raised:
    """The function raised ``error``."""

    error: BaseException


Event = PendingCall | WorkflowResult | Raised
"""What a run comes to next: a call, its result, an error."""


@dataclass
class Earned:
    """Rewards of one message."""

    team: float = 0.0
    local: float = 0.0
    info: dict[str, float] = field(default_factory=dict)


class WorkflowRun:
    """``function(task, client_for_agent)`` in a thread, which may block without disturbing others; an async function
    has an event loop of its own there.

    ``said`` is the world's record of the calls that were answered: whose it is, goes on with the run.
    """

    def __init__(
        self,
        service: Service,
        function: Callable[..., Any],
        task: Task,
        agents: tuple[str, ...],
        said: Any,
        unscored: Collection[str] = (),
    ) -> None:
        """Begin.  Raises :class:`...errors.AbsentError` where the gateway's packages are not here."""
        self.said, self.closed = said, False
        self._service, self._function, self._task, self._agents = service, function, task, agents
        self._unscored = unscored
        self._lock = threading.RLock()  # the garbage collector may close a run whose lock its thread holds
        self._events: deque[Event] = deque()
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._pending: set[PendingCall] = set()
        self._orphans: list[PendingCall] = []  # whose sender is gone; the same request again gets their reply
        self._refusals: Counter[str] = Counter()  # by agent, "" where the request named none; in no numbers yet
        self._told: Counter[str] = Counter()  # those that are in the numbers of a message
        self._speaker: str | None = None  # whose message may be rewarded now
        self._earned = Earned()
        self._clients: dict[str, AgentClient] = {}
        self._coroutine: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._id, self._base_url = service.join(self)
        threading.Thread(target=self._play, name=f"workflow {task.task_id}", daemon=True).start()

    # ---- for the player, in its event loop -------------------------------------------------------------------------

    async def next(self, limit_s: float) -> Event:
        """The next event.  Raises ``TimeoutError`` where the workflow takes more than ``limit_s`` seconds to it."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_s):
                while True:  # what woke the player may be taken back, see _orphan
                    with self._lock:
                        if self._events:
                            return self._first()
                        waiter = loop.create_future()
                        self._waiter = (loop, waiter)
                    await waiter
        except TimeoutError:  # a busy loop sees the limit and what came in time at once
            with self._lock:
                if not self._events:
                    raise
                return self._first()

    def _first(self) -> Event:
        """The first of the events, with the lock held."""
        self._waiter = self._speaker = None
        return self._events.popleft()

    def reply(self, call: PendingCall, reply: ChatReply) -> None:
        """Answer ``call``; until the next event, the workflow may reward the message."""
        with self._lock:
            self._earned = Earned()
            # Where others wait already, the workflow called several agents at once.
            self._speaker = None if self._events else call.request.agent
            self._pending.discard(call)
        call.settle(reply)

    def drain(self, agent: str) -> tuple[Earned, int]:
        """What the last message, of ``agent``, was rewarded, and how many requests were refused since the agent's
        message before it: the agent's, and those that named no agent of the team.
        """
        with self._lock:
            earned, self._earned = self._earned, Earned()
            refused = Counter({name: self._refusals.pop(name, 0) for name in (agent, "")})
            self._told += refused
            return earned, refused.total()

    def forget(self) -> None:
        """Drop what :meth:`drain` would give: another run had it before."""
        with self._lock:
            self._earned = Earned()
            self._refusals.clear()

    def close(self, *, lost: bool = False) -> None:
        """End the run, wherever it is: its calls are refused, and its coroutine is cancelled.  From any thread.
        ``lost``: no numbers of its messages count.
        """
        with self._lock:
            if self.closed:
                return
            self.closed = True
            pending, self._pending = self._pending, set()
            coroutine = self._coroutine
            left = self._refusals + self._told if lost else self._refusals
        self._service.leave(self._id, self._task.split, left)
        for call in pending:
            call.settle(RefusedError(HTTPStatus.GONE, "the episode is over", "episode_over"))
        if coroutine is not None:
            loop, task = coroutine
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(task.cancel)

    # ---- for the server, in its thread, and for the workflow in its own --------------------------------------------

    async def answer(self, request: ChatRequest, draft: Draft) -> ChatReply:
        """The reply of a policy, of which ``draft`` has the begin before.  A request that is sent again after its
        connection broke is not asked again."""
        check_scored(request, self._unscored)
        loop = asyncio.get_running_loop()
        with self._lock:
            again = (each for each in self._orphans if each.loop is loop and each.request.key == request.key)
            if (orphan := next(again, None)) is not None:
                self._orphans.remove(orphan)
            elif self.closed:
                raise RefusedError(HTTPStatus.GONE, "the episode is over", "unknown_episode")
            call = orphan or PendingCall(request, loop, loop.create_future())
            self._pending.add(call)
        draft.take(call.draft)
        call.draft = draft
        if orphan is None:
            self._happen(call)
        try:
            return await asyncio.shield(call.future)
        except asyncio.CancelledError:
            self._orphan(call)
            raise

    def _orphan(self, call: PendingCall) -> None:
        """The sender of ``call`` is gone; perhaps it has sent the request again before that was seen."""
        with self._lock:
            waiting = [each for each in self._events if isinstance(each, PendingCall) and each is not call]
            again = next((each for each in waiting if each.request.key == call.request.key), None)
            if again is None:
                self._orphans.append(call)
                return
            self._events.remove(again)
        again.draft.take(call.draft)
        call.draft = again.draft
        call.future.add_done_callback(lambda future: _copy(future, again))

    def count(self, agent: str) -> None:
        """A request of ``agent`` was refused, or its sender is gone; "": it named no agent of the team."""
        with self._lock:
            self._refusals[agent] += 1

    # ---- for the workflow, in its thread ---------------------------------------------------------------------------

    def _play(self) -> None:
        try:
            try:
                outcome = self._function(self._task, self._client)
                if inspect.iscoroutine(outcome):
                    outcome = asyncio.run(self._await(outcome))
            finally:
                if any(client.opened for client in self._clients.values()):  # by a function that is not async
                    asyncio.run(self._close_clients())
            self._happen(WorkflowResult.of(outcome))
        except BaseException as error:  # the player raises it
            self._happen(Raised(error))

    async def _await(self, outcome: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(outcome)  # of its own: what is closed below is not cancelled
        with self._lock:
            self._coroutine = asyncio.get_running_loop(), task
            if self.closed:
                task.cancel()
        try:
            return await task
        finally:
            await self._close_clients()

    async def _close_clients(self) -> None:
        for client in list(self._clients.values()):
            await client.close()

    def _client(self, agent: str) -> AgentClient:
        """The client of ``agent``.  Raises ``ValueError`` for another name."""
        if agent not in self._agents:
            raise ValueError(f"there is no agent '{agent}'; the workflow's agents are {', '.join(self._agents)}")
        with self._lock:
            if agent not in self._clients:

                def reward(local: float = 0.0, team: float = 0.0, **info: float) -> None:
                    earned = Earned(finite("team", team), finite("local", local), finite_info(info))
                    self._reward(agent, earned)

                self._clients[agent] = AgentClient(agent, self._base_url, self._service.key, reward, self._ask)
            return self._clients[agent]

    async def _ask(self, keys: Mapping[str, Any]) -> ChatReply:
        """:meth:`answer` without a server in between; what is refused is counted as there."""
        try:
            return await self.answer(read_request(keys), Draft())
        except RefusedError as error:
            self._service.refused(self._id, keys.get("model"), error.code)
            raise
        except asyncio.CancelledError:
            self._service.refused(self._id, keys.get("model"), "disconnected")
            raise

    def _reward(self, agent: str, earned: Earned) -> None:
        with self._lock:
            if self._speaker != agent:
                raise RuntimeError(
                    f"a reward of agent '{agent}' belongs between the reply to its call and the next call of any "
                    "agent; return what is known only later as the workflow's result"
                )
            sofar = self._earned
            self._earned = Earned(sofar.team + earned.team, sofar.local + earned.local, sofar.info | earned.info)

    # ---- from one thread to another --------------------------------------------------------------------------------

    def _happen(self, event: Event) -> None:
        with self._lock:
            if self.closed:
                return
            self._events.append(event)
            waiter = self._waiter
        if waiter is not None:
            loop, future = waiter
            with suppress(RuntimeError):  # nobody plays any more
                loop.call_soon_threadsafe(_wake, future)


def _copy(future: asyncio.Future[ChatReply], call: PendingCall) -> None:
    error = future.exception()
    call.settle(future.result() if error is None else RefusedError(HTTPStatus.GONE, str(error), "episode_over"))


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
