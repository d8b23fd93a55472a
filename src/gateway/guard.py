"""Who may ask a server of Troupe's, and for how much: ASGI middleware before the gateway, or before vLLM's application.

vLLM's ``--api-key`` guards some paths only, and it accepts any ``Host``.  Every refusal has the shape of OpenAI's
errors, or of Anthropic's where a path of theirs was asked.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

KEY_ENV = "TROUPE_API_KEY"
"""The environment variable with the key of a server of ``troupe serve`` or ``troupe gateway``."""
SETTINGS_ENV = "TROUPE_SERVE_GUARD"
"""The environment variable in which a server finds its :class:`GuardSettings`."""

LOCAL = ("localhost", "127.0.0.1", "::1")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class GuardSettings:
    """``hosts``: the names by which the server may be asked; where ``any_address``, also any IP address, which no
    stranger's page can take (DNS rebinding needs a name).  ``max_requests`` are under way at once, at most; a body has
    ``max_body_bytes`` at most, and arrives within ``body_s`` seconds; a request asks for ``max_choices`` completions
    at most: ``n`` for each of its prompts.
    """

    hosts: tuple[str, ...]
    any_address: bool = False
    max_requests: int = 1024
    max_body_bytes: int = 4 << 20
    max_choices: int = 256
    body_s: float = 30.0

    def environment(self) -> dict[str, str]:
        """As :meth:`from_environment` reads it."""
        return {SETTINGS_ENV: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls) -> GuardSettings:
        settings = json.loads(os.environ[SETTINGS_ENV])
        return cls(**{**settings, "hosts": tuple(settings["hosts"])})

    def allows(self, authority: str) -> bool:
        """Whether ``authority`` (``HOST[:PORT]``) is one of the server's names."""
        try:
            host = urlsplit(f"//{authority}").hostname or ""
        except ValueError:
            return False
        return host.rstrip(".") in self.hosts or (self.any_address and _is_address(host))


LONGEST = 1000
"""Characters of a refusal."""


class RefusedError(Exception):
    """A request that is not passed on; the message is for who asked."""

    def __init__(self, status: HTTPStatus, message: str, code: str, param: str | None = None, **headers: str) -> None:
        message, param = message[:LONGEST], param and param[:LONGEST]  # they may repeat what was sent
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers
        self.body = {"error": {"message": message, "type": _type(status), "param": param, "code": code}}


class Guard:
    """The middleware.  ``settings`` and ``key`` are those of the environment where they are not given, as by vLLM.
    ``refused`` is called with the scope of each request that is refused here, the model that its body names, where it
    could be read, and the error's code.
    """

    def __init__(
        self,
        app: App,
        settings: GuardSettings | None = None,
        key: str | None = None,
        refused: Callable[[Mapping[str, Any], Any, str], None] = lambda scope, model, code: None,
    ) -> None:
        self._app, self._refused = app, refused
        self._settings = GuardSettings.from_environment() if settings is None else settings
        key = os.environ.get(KEY_ENV) if key is None else key
        self._digest = sha256(key.encode()).digest() if key else None
        self._under_way = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        headers = _headers(scope)
        try:
            self._check_place(headers)
            if not _is_preflight(scope, headers) and not _is_health(scope):
                self._check_key(headers)
            if scope["type"] != "http":
                return await self._app(scope, receive, send)
            if self._under_way >= self._settings.max_requests:
                message = f"{self._under_way} requests are under way; try again"
                raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, message, "too_many_requests", **{"retry-after": "1"})
        except RefusedError as error:
            return await self._refuse(scope, error, receive, send)
        self._under_way += 1
        try:
            await self._answer(scope, headers, receive, send)
        finally:
            self._under_way -= 1

    async def _answer(
        self, scope: MutableMapping[str, Any], headers: Mapping[str, list[str]], receive: Receive, send: Send
    ) -> None:
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return await self._app(scope, receive, send)
        keys: Mapping[str, Any] = {}
        try:
            body = await self._body(headers, receive)
            keys = _keys(body)
            self._check_keys(keys)
        except RefusedError as error:
            return await self._refuse(scope, error, receive, send, keys.get("model"))
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)

    async def _refuse(
        self, scope: Mapping[str, Any], error: RefusedError, receive: Receive, send: Send, model: Any = None
    ) -> None:
        self._refused(scope, model, error.code)
        await refuse(scope, error, receive, send)

    def _check_place(self, headers: Mapping[str, list[str]]) -> None:
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self._settings.allows(hosts[0]):
            message = (
                f"this server is not {', '.join(hosts) or 'named'}: it is asked as {', '.join(self._settings.hosts)}"
            )
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, message, "unknown_host")
        for origin in headers.get("origin", []):  # a page in somebody's browser
            if not self._settings.allows(origin.partition("://")[2]):
                raise RefusedError(HTTPStatus.FORBIDDEN, f"pages of {origin} may not ask this server", "unknown_origin")

    def _check_key(self, headers: Mapping[str, list[str]]) -> None:
        if self._digest is None:
            return
        bearer = [f"Bearer {key}" for key in headers.get("x-api-key", [])]  # as Anthropic's client sends it
        scheme, _, key = (headers.get("authorization") or bearer or [""])[0].partition(" ")
        given = sha256(key.strip().encode("latin-1")).digest()
        if not (hmac.compare_digest(given, self._digest) and scheme.lower() == "bearer"):
            message = "the key is wrong, or there is none: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"
            raise RefusedError(HTTPStatus.UNAUTHORIZED, message, "invalid_api_key", **{"www-authenticate": "Bearer"})

    async def _body(self, headers: Mapping[str, list[str]], receive: Receive) -> bytes:
        """The whole body.  Raises :class:`RefusedError` for one that is too large, slow, or not completed."""
        most = self._settings.max_body_bytes
        too_large = RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has {most:,} bytes at most", "body_too_large"
        )
        if any(not length.isdecimal() or int(length) > most for length in headers.get("content-length", [])):
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(HTTPStatus.BAD_REQUEST, "the body is not complete", "incomplete_body")
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError as error:
            reason = f"the body did not arrive within {self._settings.body_s:g} s"
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, reason, "slow_body") from error

    def _check_keys(self, keys: Mapping[str, Any]) -> None:
        """Raise :class:`RefusedError` for what asks for too much."""
        prompt = keys.get("prompt")
        prompts = len(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list) else 1
        self._check_numbers(keys, prompts)
        if isinstance(nested := keys.get("sampling_params"), dict):  # of /inference/v1/generate
            self._check_numbers(nested, prompts)

    def _check_numbers(self, keys: Mapping[str, Any], prompts: int) -> None:
        most = self._settings.max_choices
        for name in ("n", "best_of", "max_tokens", "max_completion_tokens", "max_output_tokens"):
            if (value := keys.get(name)) is not None and (type(value) is not int or value < 1):
                message = f"{name} must be a whole number of at least 1"
                raise RefusedError(HTTPStatus.BAD_REQUEST, message, "invalid_value", name)
        for name in ("n", "best_of"):
            if prompts * (keys.get(name) or 1) > most:
                message = f"a request may ask for {most} completions: n of them for each of its prompts"
                raise RefusedError(HTTPStatus.BAD_REQUEST, message, "invalid_value", name)


def _keys(body: bytes) -> Mapping[str, Any]:
    """The keys of a body.  Raises :class:`RefusedError` for what is no JSON object."""
    if not body:
        return {}
    try:
        keys = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {reason}", "invalid_json") from error
    if not isinstance(keys, dict):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the body must be a JSON object", "invalid_json")
    return keys


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _headers(scope: Mapping[str, Any]) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def _is_preflight(scope: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    """A browser's question whether a page may ask, which has no key and no body."""
    return scope["type"] == "http" and scope["method"] == "OPTIONS" and "access-control-request-method" in headers


def _is_health(scope: Mapping[str, Any]) -> bool:
    return scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/health"


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _type(status: HTTPStatus) -> str:
    """OpenAI's name of the kind of error."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "server_error"
    return "rate_limit_error" if status is HTTPStatus.TOO_MANY_REQUESTS else "invalid_request_error"


ANTHROPICS = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
"""Anthropic's names of kinds of errors; of others ``invalid_request_error``, from 500 on ``api_error``."""


def in_anthropics_form(error: RefusedError) -> dict[str, Any]:
    """The body of ``error``; ``code`` and ``param`` are in it, too."""
    kind = "api_error" if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    return {"type": "error", "error": error.body["error"] | {"type": ANTHROPICS.get(error.status, kind)}}


async def refuse(scope: Mapping[str, Any], error: RefusedError, receive: Receive, send: Send) -> None:
    """Answer a request with ``error``, in the form of OpenAI's errors, or of Anthropic's where it asked so."""
    if scope["type"] == "websocket":
        await receive()
        return await send({"type": "websocket.close", "code": 1008, "reason": str(error)[:100]})
    theirs = scope["path"].rstrip("/").endswith("/v1/messages")
    body = json.dumps(in_anthropics_form(error) if theirs else error.body).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in (headers | error.headers).items()]
    await send({"type": "http.response.start", "status": int(error.status), "headers": pairs})
    await send({"type": "http.response.body", "body": body})
