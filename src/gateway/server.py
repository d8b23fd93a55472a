"""The gateway: chat completions, responses and messages over HTTP, each answered by whoever plays the episode that it
belongs to.

The path names the episode, ``/episodes/ID/v1/chat/completions`` (or ``responses``, ``messages``), so that a program
needs another base URL and nothing else; or the header ``x-troupe-episode`` does, with ``/v1/chat/completions``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Protocol

from .guard import App, Guard, GuardSettings, Receive, RefusedError, Send, refuse
from .messages import message, message_events, read_message_request
from .protocol import ChatReply, ChatRequest, completion, completion_events, invalid, models, read_request
from .responses import read_response_request, response, response_events

log = logging.getLogger(__name__)

EPISODE_HEADER = "x-troupe-episode"
WHAT = "chat/completions|responses|messages|models"
PATH = re.compile(rf"(?:/episodes/(?P<episode>[A-Za-z0-9_.-]{{1,128}}))?/v1/(?P<what>{WHAT})/?")
SESSION_HEADER = "x-troupe-session"
SESSION = re.compile(r"[A-Za-z0-9_.-]{1,64}(/[A-Za-z0-9_.-]{1,64}){0,15}")
KEEP_ALIVE_S = 3600
"""How long an idle connection stays open: a policy may think for long between two calls."""
GRACE_S = 2
"""How long the end of the server waits for replies that are being sent."""


@dataclass(frozen=True)
class Form:
    """A form in which clients ask: how a request is read, and a reply written."""

    read: Callable[[Mapping[str, Any]], ChatRequest]
    whole: Callable[[ChatReply, ChatRequest, str, int], bytes]
    events: Callable[[ChatReply, ChatRequest, str, int], Iterable[bytes]]
    prefix: str = ""
    """Of the ids of replies."""


FORMS = {
    "chat/completions": Form(read_request, completion, completion_events, "chatcmpl-"),
    "responses": Form(read_response_request, response, response_events),
    "messages": Form(read_message_request, message, message_events),
}
"""By the end of the path."""


class Episodes(Protocol):
    """Who answers.  The methods are called in the server's thread."""

    def agents(self, episode: str | None) -> Sequence[str]:
        """The agents of ``episode``.  Raises :class:`RefusedError` where there is none of this name."""
        ...

    async def answer(self, episode: str | None, request: ChatRequest) -> ChatReply:
        """The reply; cancelled where who asked is gone.  Raises :class:`RefusedError`."""
        ...

    def refused(self, episode: str | None, model: Any, code: str) -> None:
        """Count a request of ``model`` (an agent, anything else, or None where it could not be read) that was refused,
        or ``disconnected`` before its reply."""
        ...


class Gateway:
    """The ASGI application behind the :class:`.guard.Guard`."""

    def __init__(self, episodes: Episodes) -> None:
        self._episodes = episodes
        self._numbers = itertools.count()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/health":
            return await _respond(send, b"{}")
        (episode, what), model = _place(scope), None
        try:
            if what == "models" and scope["method"] == "GET":
                return await _respond(send, models(self._episodes.agents(episode), int(time.time())))
            if what not in FORMS or scope["method"] != "POST":
                message = (
                    f"{scope['method']} {scope['path']}: the gateway serves POST [/episodes/ID]/v1/chat/completions"
                    ", /v1/responses and /v1/messages"
                )
                raise RefusedError(HTTPStatus.NOT_FOUND, message, "unknown_path")
            form = FORMS[what]
            keys = json.loads((await receive()).get("body") or b"{}")  # whole: the guard has read it
            model = keys.get("model")
            request = replace(form.read(keys), session=_session(scope))
            if request.agent not in (known := self._episodes.agents(episode)):
                message = f"there is no agent '{request.agent}'; a model's name is one of {', '.join(known)}"
                raise RefusedError(HTTPStatus.NOT_FOUND, message, "model_not_found", "model")
            id, now = f"{form.prefix}{next(self._numbers)}", int(time.time())
            reply = await _unless_gone(self._episodes.answer(episode, request), receive)
        except RefusedError as error:
            self._episodes.refused(episode, model, error.code)
            return await refuse(scope, error, receive, send)
        except Exception as error:  # ours; who asked is to read it as an error in their form
            log.exception("a request to the gateway failed")
            self._episodes.refused(episode, model, "internal_error")
            message = f"the gateway failed: {type(error).__name__}: {error}"
            failed = RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, message, "internal_error")
            return await refuse(scope, failed, receive, send)
        if reply is None:
            return self._episodes.refused(episode, model, "disconnected")
        if request.stream:
            return await _stream(send, form.events(reply, request, id, now))
        await _respond(send, form.whole(reply, request, id, now))


async def _unless_gone(answer: Awaitable[ChatReply], receive: Receive) -> ChatReply | None:
    """``answer``; None where who asked is gone before."""
    reply, gone = asyncio.ensure_future(answer), asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((reply, gone), return_when=asyncio.FIRST_COMPLETED)
        return reply.result() if reply.done() else None
    finally:
        reply.cancel()
        gone.cancel()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _place(scope: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The episode and what is asked for."""
    match = PATH.fullmatch(scope["path"])
    if match is None:
        return None, None
    return match["episode"] or _header(scope, EPISODE_HEADER), match["what"]


def _session(scope: Mapping[str, Any]) -> str:
    """The session that asks; "" where there is none.  Raises :class:`RefusedError`."""
    session = _header(scope, SESSION_HEADER)
    if session is not None and not SESSION.fullmatch(session):
        raise invalid(SESSION_HEADER, "must be a path such as a/b: up to 16 names of up to 64 of A-Z a-z 0-9 _ . -")
    return session or ""


def _header(scope: Mapping[str, Any], name: str) -> str | None:
    """Of several, all, with commas between them."""
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name.encode()]
    return ", ".join(values) if values else None


async def _respond(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _stream(send: Send, events: Iterable[bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for event in events:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Server:
    """An ASGI application on a socket of this machine, in a thread of its own."""

    def __init__(self, app: App, host: str = "127.0.0.1", port: int = 0) -> None:
        """``port`` 0: any that is free.  Raises ``OSError``."""
        import uvicorn  # of the extra `gateway`

        [(family, *_, place), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self._socket = socket.create_server(place, family=family, backlog=2048)
        self.host, self.port = host, self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="gateway", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """``http://HOST:PORT``."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def close(self) -> None:
        """End the server, once what is being sent is sent."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def guarded(episodes: Episodes, settings: GuardSettings, key: str | None) -> Guard:
    """The gateway behind its guard."""

    def refused(scope: Mapping[str, Any], model: Any, code: str) -> None:
        episodes.refused(_place(scope)[0] if scope["type"] == "http" else None, model, code)

    return Guard(Gateway(episodes), settings, key or "", refused)
