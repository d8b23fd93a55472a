"""The gateway of a workflow world: one server for all of its runs."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

from ...errors import AbsentError
from ...gateway.guard import LOCAL, GuardSettings, RefusedError
from ...gateway.protocol import ChatReply, ChatRequest
from ...gateway.server import Server, guarded

LIMITS = GuardSettings(LOCAL, max_requests=1 << 16, max_body_bytes=64 << 20)
QUIET = ("httpx", "httpx2")
"""The loggers of HTTP clients."""


class Player(Protocol):
    """A run of a workflow, as the server sees it."""

    async def answer(self, request: ChatRequest) -> ChatReply:
        """The reply, once the policy has written it."""
        ...

    def count(self, code: str) -> None:
        """A request of the run was refused, or its sender is gone."""
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
        self.strays: Counter[str] = Counter()
        """Refused requests that belong to no run, by the code of the error."""

    def start(self) -> str:
        """The server's address; started where it is not.  Raises :class:`AbsentError`."""
        with self._lock:
            if self._server is None:
                for name in QUIET:  # a line for each request
                    logging.getLogger(name).setLevel(logging.WARNING)
                try:
                    self._server = Server(guarded(self, LIMITS, self.key))
                except ImportError as error:
                    raise AbsentError("a workflow's gateway needs uvicorn: pip install 'troupe[gateway]'") from error
            return self._server.url

    def stop(self) -> None:
        """End all runs, and the server."""
        with self._lock:
            server, self._server = self._server, None
        for run in list(self._runs.values()):
            run.close()
        if server is not None:
            server.close()

    def join(self, run: Player) -> tuple[str, str]:
        """A new id for ``run``, and its base URL."""
        url, id = self.start(), secrets.token_urlsafe(9)
        self._runs[id] = run
        return id, f"{url}/episodes/{id}/v1"

    def leave(self, id: str) -> None:
        """The run ``id`` is over."""
        self._runs.pop(id, None)

    # ---- for the server, in its thread -----------------------------------------------------------------------------

    def agents(self, episode: str | None) -> Sequence[str]:
        self._run(episode)
        return self._agents

    async def answer(self, episode: str | None, request: ChatRequest) -> ChatReply:
        return await self._run(episode).answer(request)

    def refused(self, episode: str | None, code: str) -> None:
        run = self._runs.get(episode or "")
        if run is None:
            self.strays[code] += 1
        else:
            run.count(code)

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
