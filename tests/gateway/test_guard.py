"""Who may ask a server, and for how much: over a real server on a free port."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from openai import AsyncOpenAI, AuthenticationError

from troupe.gateway.guard import KEY_ENV, Guard, GuardSettings

KEY = "a-key-that-nobody-guesses"
SETTINGS = GuardSettings(
    ("localhost", "127.0.0.1", "::1", "my.host"), max_requests=2, max_body_bytes=2000, max_choices=8
)


class Application:
    """What stands behind the guard: it says which body it got, once ``go_on`` is set."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.go_on = threading.Event()
        self.go_on.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        while not self.go_on.is_set():
            await asyncio.sleep(0.005)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "R"}}
        answer = json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer.encode()})


@contextmanager
def serving(application: Application, settings: GuardSettings, key: str | None) -> Iterator[int]:
    """The port of a running server."""
    guard = Guard(application, settings, key or "")
    server = uvicorn.Server(uvicorn.Config(guard, log_level="critical", lifespan="off", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def application() -> Application:
    return Application()


@pytest.fixture(scope="module")
def port(application: Application) -> Iterator[int]:
    with serving(application, SETTINGS, KEY) as port:
        yield port


Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def ask(port: int) -> Ask:
    """``ask(body, path=..., method=..., HEADER=...)``: the status and the answer."""

    def asked(body: Any = None, path: str = "/v1/chat/completions", method: str = "POST", **headers: str | None) -> Any:
        sent = {"Host": f"127.0.0.1:{port}", "Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}  # type: ignore[misc]
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, path, data, {name: value for name, value in sent.items() if value is not None})
        reply = connection.getresponse()
        answer = reply.status, json.loads(reply.read())
        connection.close()
        return answer

    return asked


def refused(answer: tuple[int, Any]) -> tuple[int, str]:
    """The status and the code of an error in OpenAI's shape."""
    status, content = answer
    error = content["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"] and error["type"].endswith("_error")
    return status, error["code"]


def test_who_has_the_key_is_answered(ask: Ask, application: Application) -> None:
    status, answer = ask({"model": "m", "n": 8})
    assert status == 200 and answer["choices"][0]["message"]["content"] == "R"
    assert json.loads(application.bodies[-1]) == {"model": "m", "n": 8}


@pytest.mark.parametrize("path", ["/v1/models", "/invocations", "/tokenize", "/metrics", "/"])
@pytest.mark.parametrize("key", [None, "Bearer", "Bearer wrong", KEY, f"Basic {KEY}", f"Bearer {KEY}x", "Bearer \xfc"])
def test_nothing_is_answered_without_the_key(ask: Ask, application: Application, path: str, key: str | None) -> None:
    before = len(application.bodies)
    assert refused(ask(path=path, method="GET", Authorization=key)) == (401, "invalid_api_key")
    assert len(application.bodies) == before


def test_a_key_and_an_error_in_anthropics_form(ask: Ask) -> None:
    assert ask({}, Authorization=None, X_Api_Key=KEY)[0] == 200
    for header in ({"X_Api_Key": "wrong"}, {"X_Api_Key": f"Bearer {KEY}"}, {}):
        status, answer = ask({}, "/episodes/e/v1/messages", Authorization=None, **header)
        assert (status, answer["type"], answer["error"]["type"]) == (401, "error", "authentication_error")
    assert refused(ask({}, Authorization="Bearer wrong", X_Api_Key=KEY)) == (401, "invalid_api_key")


def test_health_needs_no_key(ask: Ask) -> None:
    assert ask(path="/health", method="GET", Authorization=None)[0] == 200
    assert refused(ask({}, path="/health", Authorization=None)) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "localhost.evil.example", "", "192.0.2.1", "[::1"),
        *("localhost@evil.example", "evil.example#localhost", "evil.example?@localhost", "evil.example/@localhost"),
        *("2130706433", "127.1", "0", "localhost, evil.example", "[::ffff:127.0.0.1]", "[::1%25lo]", "localhost\xa0"),
    ],
)
def test_a_name_that_is_not_the_servers_is_refused_before_the_key_is_looked_at(ask: Ask, host: str) -> None:
    assert refused(ask({}, Host=host)) == (421, "unknown_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:8000", "my.host", "my.host.:8000"])
def test_its_own_names(ask: Ask, host: str) -> None:
    assert ask({}, Host=host)[0] == 200


def test_pages_of_others_may_not_ask(ask: Ask) -> None:
    for origin in ("https://evil.example", "null"):
        assert refused(ask({}, Origin=origin)) == (403, "unknown_origin")
        assert refused(ask(method="OPTIONS", Origin=origin)) == (403, "unknown_origin")
    page = {"Origin": "http://localhost:3000", "Access_Control_Request_Method": "POST"}
    assert ask(method="OPTIONS", Authorization=None, **page)[0] == 200
    assert refused(ask(method="OPTIONS", Authorization=None)) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    ("body", "answer", "param"),
    [
        (b'{"model": ', (400, "invalid_json"), None),
        (b"[" * 1999, (400, "invalid_json"), None),
        (b"\xff\xfe", (400, "invalid_json"), None),
        ([1], (400, "invalid_json"), None),
        (b'{"temperature": NaN}', (400, "invalid_json"), None),
        ({"n": 9}, (400, "invalid_value"), "n"),
        ({"best_of": 9}, (400, "invalid_value"), "best_of"),
        ({"n": 0}, (400, "invalid_value"), "n"),
        ({"n": 1e9}, (400, "invalid_value"), "n"),
        ({"n": True}, (400, "invalid_value"), "n"),
        ({"max_tokens": -1}, (400, "invalid_value"), "max_tokens"),
        ({"max_tokens": "many"}, (400, "invalid_value"), "max_tokens"),
        ({"prompt": ["a", "b", "c"], "n": 3}, (400, "invalid_value"), "n"),
        ({"prompt": [[1]] * 9}, (400, "invalid_value"), "n"),
        ({"token_ids": [1], "sampling_params": {"n": 9}}, (400, "invalid_value"), "n"),
        ({"token_ids": [1], "sampling_params": {"max_tokens": 0}}, (400, "invalid_value"), "max_tokens"),
        (b'{"n": 1, "n": 9}', (400, "invalid_value"), "n"),
        (b'{"n": ' + b"9" * 1900 + b"}", (400, "invalid_value"), "n"),
        (b'{"n": 1e400}', (400, "invalid_value"), "n"),
        (b'{"max_tokens": "\\ud800"}', (400, "invalid_value"), "max_tokens"),
        ({"x": "y" * 2000}, (413, "body_too_large"), None),
    ],
)
def test_what_a_body_may_ask_for(ask: Ask, body: Any, answer: tuple[int, str], param: str | None) -> None:
    reply = ask(body)
    assert refused(reply) == answer and reply[1]["error"]["param"] == param
    assert ask({"prompt": list(range(100)), "n": 8})[0] == 200  # one prompt of 100 tokens


def test_a_body_without_a_length_is_bounded_too(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        head = f"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        head += "Transfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode() + b"".join(b"3e8\r\n" + b"x" * 1000 + b"\r\n" for _ in range(3)))
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nAuthorization: Bearer {KEY}\r\n", 421),
        (f"POST /v1/x HTTP/1.0\r\nAuthorization: Bearer {KEY}\r\n", 421),
        (f"POST http://localhost/v1/x HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {KEY}\r\n", 421),
        (f"POST /v1/x?key={KEY} HTTP/1.1\r\nHost: localhost\r\nApi-Key: {KEY}\r\nCookie: key={KEY}\r\n", 401),
        ("GET /health/../v1/models HTTP/1.1\r\nHost: localhost\r\n", 401),
        ("GET /health%2f HTTP/1.1\r\nHost: localhost\r\n", 401),
        ("GET //health HTTP/1.1\r\nHost: localhost\r\n", 401),
        ("get /health HTTP/1.1\r\nHost: localhost\r\n", 401),
        ("GET /HEALTH HTTP/1.1\r\nHost: localhost\r\n", 401),
        (
            f"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\nAuthorization: Bearer {KEY}\r\n",
            401,
        ),
        (f"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\nContent-Length: -1\r\n", 400),
        (
            f"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Length: {'9' * 5000}\r\n",
            413,
        ),
    ],
)
def test_a_request_that_is_written_by_hand(port: int, application: Application, head: str, status: int) -> None:
    before = len(application.bodies)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
        assert int(connection.recv(100).split()[1]) in {status, 400}, "400: the server itself refuses it"
    assert len(application.bodies) == before


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    slow = GuardSettings(("localhost",), body_s=0.05)
    with serving(Application(), slow, None) as port, socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall(b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        assert one.recv(100).startswith(b"HTTP/1.1 408")


def test_more_requests_than_there_is_room_for_are_sent_away(ask: Ask, application: Application) -> None:
    application.go_on.clear()
    before = len(application.bodies)
    try:
        threads = [threading.Thread(target=ask, args=({},)) for _ in range(2)]
        for thread in threads:
            thread.start()
        while len(application.bodies) < before + 2:
            time.sleep(0.005)
        assert refused(ask({})) == (429, "too_many_requests")
    finally:
        application.go_on.set()
    for thread in threads:
        thread.join()
    assert ask({})[0] == 200


async def test_openais_client_understands_the_answers(port: int) -> None:
    messages: Any = [{"role": "user", "content": "x"}]
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0) as client:
        reply = await client.chat.completions.create(model="m", messages=messages)
        assert reply.choices[0].message.content == "R"
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(AuthenticationError) as error:
            await client.chat.completions.create(model="m", messages=messages)
        assert error.value.code == "invalid_api_key" and KEY not in str(error.value)


async def test_a_websocket_is_guarded_as_well() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer wrong")]
    scope = {"type": "websocket", "path": "/v1/realtime", "headers": headers}
    await Guard(Application(), SETTINGS, KEY)(scope, receive, send)
    assert [(message["type"], message["code"]) for message in sent] == [("websocket.close", 1008)]


def test_the_settings_reach_the_servers_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError):  # vLLM does not start without
        Guard(Application())
    for name, value in SETTINGS.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(KEY_ENV, KEY)
    assert GuardSettings.from_environment() == SETTINGS


def test_any_address_is_no_name() -> None:
    wildcard = GuardSettings(("localhost",), any_address=True)
    assert (
        wildcard.allows("192.0.2.1:8000") and wildcard.allows("[2001:db8::1]") and not wildcard.allows("evil.example")
    )
