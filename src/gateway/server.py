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
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Protocol, cast

from .guard import App, Guard, GuardSettings, Receive, RefusedError, Send, refuse
from .messages import MessageStream, message, read_message_request
from .protocol import (
    ChatReply,
    ChatRequest,
    ChatStream,
    Draft,
    Token,
    check_scored,
    completion,
    invalid,
    models,
    read_request,
)
from .responses import ResponseStream, read_response_request, response

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


class Stream(Protocol):
    """Writes the events of a reply that is streamed; :mod:`.protocol` has one."""

    def begin(self) -> Iterator[bytes]: ...

    def text(self, piece: str, tokens: Sequence[Token]) -> Iterator[bytes]:
        """The next piece of the text, and the tokens drawn since the piece before."""
        ...

    def end(self, reply: ChatReply) -> Iterator[bytes]:
        """What follows the text."""
        ...

    def failed(self, error: RefusedError) -> bytes:
        """In place of what would follow."""
        ...


@dataclass(frozen=True)
class Form:
    """A form in which clients ask: how a request is read, and a reply written."""

    read: Callable[[Mapping[str, Any]], ChatRequest]
    whole: Callable[[ChatReply, ChatRequest, str, int], bytes]
    stream: Callable[[ChatRequest, str, int], Stream]
    prefix: str = ""
    """Of the ids of replies."""


FORMS = {
    "chat/completions": Form(read_request, completion, ChatStream, "chatcmpl-"),
    "responses": Form(read_response_request, response, ResponseStream),
    "messages": Form(read_message_request, message, MessageStream),
}
"""By the end of the path."""


class Episodes(Protocol):
    """Who answers.  The methods are called in the server's thread."""

    def agents(self, episode: str | None) -> Sequence[str]:
        """The agents of ``episode``.  Raises :class:`RefusedError` where there is none of this name."""
        ...

    async def answer(self, episode: str | None, request: ChatRequest, draft: Draft) -> ChatReply:
        """The reply, of which ``draft`` may have the begin before; cancelled where who asked is gone.  Raises
        :class:`RefusedError`."""
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
        (episode, what), model, sending = _place(scope), None, Sending(send)
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
            sending.stream = form.stream(request, id, now) if request.stream else None
            reply = await _unless_gone(self._episodes.answer(episode, request, sending.draft), sending, receive)
            if reply is not None and not reply.tokens:  # such as of a stored episode that is replayed
                check_scored(request, [request.agent])
            if reply is not None and sending.stream is not None:
                return await sending.end(reply)
        except RefusedError as error:
            self._episodes.refused(episode, model, error.code)
            return await sending.refuse(scope, error, receive)
        except Exception as error:  # ours; who asked is to read it as an error in their form
            log.exception("a request to the gateway failed")
            self._episodes.refused(episode, model, "internal_error")
            message = f"the gateway failed: {type(error).__name__}: {error}"
            failed = RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, message, "internal_error")
            return await sending.refuse(scope, failed, receive)
        if reply is None:
            return self._episodes.refused(episode, model, "disconnected")
        await _respond(send, form.whole(reply, request, id, now))


class Sending:
    """A reply on its way: streamed by ``stream``, where that is given, as its ``draft`` grows."""

    def __init__(self, send: Send) -> None:
        self.draft, self.stream = Draft(), cast("Stream | None", None)
        self._send, self._begun = send, False
        self._text, self._tokens = "", 0  # what is sent

    async def follow(self, reply: asyncio.Future[ChatReply]) -> None:
        """Send what is certain of ``reply``, as it comes, until it is there."""
        while not reply.done():
            await self.draft.changed.wait()
            self.draft.changed.clear()
            text = self.draft.text
            if self.stream is not None and text != self._text and text.startswith(self._text):
                await self._pass_on(text, self.draft.tokens)

    async def end(self, reply: ChatReply) -> None:
        """Send the rest.  Raises :class:`RefusedError` where decoding began anew and went another way."""
        assert self.stream is not None
        if not reply.content.startswith(self._text):
            message = "the engine began anew, and the message is another one than what was sent"
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, message, "stream_changed")
        if not self._begun or len(reply.content) > len(self._text) or len(reply.tokens) > self._tokens:
            await self._pass_on(reply.content, reply.tokens)
        for event in self.stream.end(reply):
            await self._put(event)
        await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, scope: Mapping[str, Any], error: RefusedError, receive: Receive) -> None:
        """Send ``error``, as an event where the stream has begun."""
        if not self._begun or self.stream is None:
            return await refuse(scope, error, receive, self._send)
        await self._put(self.stream.failed(error))
        await self._send({"type": "http.response.body", "body": b""})

    async def _pass_on(self, text: str, tokens: Sequence[Token]) -> None:
        assert self.stream is not None
        (before, self._text), (first, self._tokens) = (self._text, text), (self._tokens, len(tokens))
        if not self._begun:
            self._begun = True
            await _respond_start(self._send, b"text/event-stream")
            for event in self.stream.begin():
                await self._put(event)
        if (piece := text[len(before) :]) or tokens[first:]:
            for event in self.stream.text(piece, tokens[first:]):
                await self._put(event)

    async def _put(self, event: bytes) -> None:
        await self._send({"type": "http.response.body", "body": event, "more_body": True})


async def _unless_gone(answer: Any, sending: Sending, receive: Receive) -> ChatReply | None:
    """``answer``, whose draft is sent meanwhile; None where who asked is gone before."""
    reply = asyncio.ensure_future(answer)
    reply.add_done_callback(lambda _: sending.draft.changed.set())
    follow, gone = asyncio.ensure_future(sending.follow(reply)), asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((follow, gone), return_when=asyncio.FIRST_COMPLETED)  # no event is cut in two
        if follow.done() and not reply.done():
            follow.result()  # raises what sending failed with
        return reply.result() if reply.done() else None
    finally:
        for each in (reply, gone, follow):
            each.cancel()


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


async def _respond_start(send: Send, kind: bytes, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind), *headers]})


async def _respond(send: Send, body: bytes) -> None:
    await _respond_start(send, b"application/json", (b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.body", "body": body})


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
