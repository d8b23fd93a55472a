"""The gateway of a workflow world: one server for all of its runs."""

from __future__ import annotations

import logging
import resource
import secrets
import threading
from collections import Counter, deque
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Protocol

from ...errors import AbsentError
from ...experience import Split
from ...gateway.guard import LOCAL, GuardSettings, RefusedError
from ...gateway.protocol import ChatReply, ChatRequest, Draft
from ...gateway.server import Server, guarded

log = logging.getLogger(__name__)

LIMITS = GuardSettings(LOCAL, max_requests=1 << 16, max_body_bytes=64 << 20)
ENDED = ("episode_over", "disconnected")
"""How a call ends that waited when its run did: no refusal of the request."""
QUIET = ("httpx", "httpx2")
"""The loggers of HTTP clients."""


class Player(Protocol):
    """A run of a workflow, as the server sees it."""

    async def answer(self, request: ChatRequest, draft: Draft) -> ChatReply:
        """The reply, once the policy has written it; ``draft`` has it meanwhile."""
        ...

    def count(self, agent: str) -> None:
        """A request of ``agent`` was refused, or its sender is gone; "": it named no agent of the team."""
        ...

    def close(self) -> None:
        """The run ends."""
        ...


class Service:
    """The runs by the id in their base URL, and the server, which starts when the first run needs it.

    The key is drawn anew for each server, so that other programs of this machine cannot speak for a workflow.
    """

    def __init__(self, agents: Sequence[str]) -> None:
        self._agents = tuple(agents)
        self._runs: dict[str, Player] = {}
        self._server: Server | None = None
        self._lock = threading.Lock()
        self.key = secrets.token_urlsafe(24)
        self._left: deque[tuple[Split, Counter[str]]] = deque()  # a deque: runs may leave within the garbage collector
        self._carried: Counter[tuple[Split, str]] = Counter()
        self.refusals: Counter[tuple[str, str]] = Counter()
        """All refused requests, by who asked and the code of the error."""

    def start(self) -> str:
        """The server's address; started where it is not.  Raises :class:`AbsentError`.

        The process may then open as many files as the system lets it: programs' event loops and connections are files.
        """
        with self._lock:
            if self._server is None:
                for name in QUIET:  # a line for each request
                    logging.getLogger(name).setLevel(logging.WARNING)
                try:
                    self._server = Server(guarded(self, LIMITS, self.key))
                except ImportError as error:
                    raise AbsentError("a workflow's gateway needs uvicorn: pip install 'troupe-rl[gateway]'") from error
                _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
                if most != resource.RLIM_INFINITY:  # which macOS does not take
                    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            return self._server.url

    def stop(self) -> None:
        """End all runs, and the server; a warning has what was refused."""
        with self._lock:
            server, self._server = self._server, None
        for run in list(self._runs.values()):
            run.close()
        if server is not None:
            server.close()
        with self._lock:
            refusals, self.refusals = self.refusals, Counter()
        if refusals:
            counts = (f"{count} of {who} ({code})" for (who, code), count in sorted(refusals.items()))
            log.warning("requests to the gateway were refused: %s", ", ".join(counts))

    def join(self, run: Player) -> tuple[str, str]:
        """A new id for ``run``, and its base URL."""
        url, id = self.start(), secrets.token_urlsafe(9)
        self._runs[id] = run
        return id, f"{url}/episodes/{id}/v1"

    def leave(self, id: str, split: Split, refused: Counter[str]) -> None:
        """The run ``id`` is over; by agent, its ``refused`` requests that no message's numbers have."""
        self._runs.pop(id, None)
        if refused:
            self._left.append((split, refused))

    def carried(self, split: Split, agent: str) -> int:
        """How many refused requests of runs that have left are to be in the numbers of a message of ``agent``."""
        while self._left:
            of, refused = self._left.popleft()
            self._carried.update({(of, name): count for name, count in refused.items()})
        return sum(self._carried.pop((split, name), 0) for name in (agent, ""))

    # ---- for the server, in its thread -----------------------------------------------------------------------------

    def agents(self, episode: str | None) -> Sequence[str]:
        self._run(episode)
        return self._agents

    async def answer(self, episode: str | None, request: ChatRequest, draft: Draft) -> ChatReply:
        return await self._run(episode).answer(request, draft)

    def refused(self, episode: str | None, model: Any, code: str) -> None:
        agent, run = model if model in self._agents else "", self._runs.get(episode or "")
        if run is None and code in ENDED:
            return
        with self._lock:
            self.refusals["no episode" if run is None else agent or "no agent", code] += 1
        if run is not None:
            run.count(agent)

    def _run(self, episode: str | None) -> Player:
        if episode is None:
            message = (
                "the base URL must name the episode, /episodes/ID/v1: take it from the workflow's client_for_agent"
            )
            raise RefusedError(HTTPStatus.NOT_FOUND, message, "no_episode")
        run = self._runs.get(episode)
        if run is None:
            raise RefusedError(HTTPStatus.GONE, f"there is no episode '{episode}', or it is over", "unknown_episode")
        return run
