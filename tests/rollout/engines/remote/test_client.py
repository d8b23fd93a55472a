"""Servers whose answers are huge, endless, or unfold: read up to a bound, and a failed request of the usual type."""

import asyncio
import gzip
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from troupe.experience import Request, Sampling
from troupe.rollout.chat_codec import ChatCodec
from troupe.rollout.engines.base import RequestFailedError
from troupe.rollout.engines.remote import engine as client
from troupe.rollout.engines.remote.engine import ALWAYS, PER_TOKEN, RemoteEngine, most_bytes
from troupe.rollout.engines.remote.settings import RemoteSettings

PROMPT = tuple(ChatCodec().apply_chat_template([{"role": "user", "content": "hi"}]))
GOOD = json.dumps({"choices": [{"message": {"content": "R"}, "finish_reason": "stop"}]}).encode()
BLANKS = b" " * (1 << 16)
ENDLESS = 1 << 40
LENGTH = (("content-length", str(ENDLESS)),)


class Stranger(BaseHTTPRequestHandler):
    """Sends ``head``, then ``body``, then ``filler`` up to ``size`` bytes, with ``pause_s`` before each piece of it."""

    protocol_version = "HTTP/1.0"
    status, size, pause_s = 200, 0, 0.0
    headers_sent: tuple[tuple[str, str], ...] = ()
    body, filler = GOOD, BLANKS
    sent = 0
    """Bytes, by all answers."""
    asked: list[str]
    stop: threading.Event

    def do_POST(self) -> None:
        type(self).asked.append(f"{self.path} {self.headers['accept-encoding']}")
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.status)
        for name, value in (("content-type", "application/json"), *self.headers_sent):
            self.send_header(name, value)
        self.end_headers()
        pieces = self.size // len(self.filler)
        for piece in (self.body, *(self.filler for _ in range(min(pieces, 1 << 20)))):
            if self.stop.wait(self.pause_s):
                return
            try:
                self.wfile.write(piece)
            except OSError:  # the client has gone
                return
            type(self).sent += len(piece)

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[Callable[..., Any]]:
    """``stranger(size=...)``: a server of that kind; returns its handler, with ``url``."""
    servers: list[ThreadingHTTPServer] = []
    stop = threading.Event()

    def start(**kind: Any) -> Any:
        handler = type("Handler", (Stranger,), {"asked": [], "stop": stop, **kind})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        handler.url = f"http://127.0.0.1:{server.server_port}/v1"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return handler

    yield start
    stop.set()
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(url: str, **settings: Any) -> tuple[str, dict[str, float]]:
    """The answer to one request for two candidates of 10 tokens, or the error in its place, and the counts."""

    async def main() -> tuple[str, dict[str, float]]:
        engine = RemoteEngine("judge", RemoteSettings(url, "m", **{"retries": 0, **settings}))
        try:
            return (await engine.generate(Request("judge", PROMPT, 1, Sampling(max_tokens=10), 7)))[
                0
            ].text, engine.drain()
        except RequestFailedError as error:
            return str(error), engine.drain()
        finally:
            await engine.close()

    return asyncio.run(main())


def test_the_bound_follows_what_was_asked_for() -> None:
    assert most_bytes(json.dumps({"n": 3, "max_tokens": 100}).encode()) == ALWAYS + 300 * PER_TOKEN
    assert most_bytes(json.dumps({"max_completion_tokens": 50}).encode()) == ALWAYS + 50 * PER_TOKEN
    assert most_bytes(b"{}") == ALWAYS


def test_blanks_up_to_the_bound_are_no_fault(stranger: Callable[..., Any]) -> None:
    server = stranger(size=1 << 21)
    text, counts = ask(server.url)
    assert (text, counts["faults/engine"]) == ("R", 0)
    assert server.asked == ["/v1/chat/completions identity"]


@pytest.mark.parametrize(
    ("status", "headers"), [(200, ()), (400, LENGTH), (429, ()), (500, LENGTH)], ids=lambda each: str(each)[:3]
)
@pytest.mark.slow
def test_an_answer_without_end_is_read_to_the_bound(stranger: Callable[..., Any], status: int, headers: Any) -> None:
    """Errors too; of what is on its way, a little more."""
    server = stranger(status=status, headers_sent=headers, size=ENDLESS)
    said, counts = ask(server.url, retries=1)
    assert f"the answer has more than {ALWAYS + 10 * PER_TOKEN:,} bytes (after 1 retries)" in said
    assert (counts["remote/judge/requests"], counts["faults/engine"]) == (2, 1)
    assert server.sent < 2 * 4 * ALWAYS


def test_a_drop_now_and_then_is_no_answer(stranger: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part comes in time, and there is no last one."""
    monkeypatch.setattr(client, "PARTS", 0.01)
    said, counts = ask(stranger(filler=b" ", size=ENDLESS, pause_s=0.01).url, timeout_s=60)
    assert "the answer has no end after 0.6 s" in said and counts["faults/engine"] == 1


BOMB = gzip.compress(b" " * (1 << 26))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "gzip, gzip", "br", "zstd", "GZIP"])
def test_what_is_compressed_is_not_unfolded(stranger: Callable[..., Any], encoding: str) -> None:
    said, _ = ask(stranger(headers_sent=(("content-encoding", encoding),), body=BOMB).url)
    assert f"the answer is compressed ({encoding.lower()}), which was not asked for" in said


CHARSETS = ["zlib", "bz2", "hex", "punycode", "utf-16", "undefined", "rot13", "no-such"]


@pytest.mark.parametrize(
    ("charset", "status"), [*((each, 200) for each in CHARSETS), ("zlib", 400), ("undefined", 400)]
)
def test_the_charset_of_an_answer_is_utf_8(stranger: Callable[..., Any], charset: str, status: int) -> None:
    """Python would unfold the bytes of some, and raise errors of other kinds."""
    kind = (("content-type", f"application/json; charset={charset}"),)
    body = zlib.compress(GOOD) if charset == "zlib" else GOOD
    said, counts = ask(stranger(status=status, headers_sent=kind, body=body).url)
    assert said == "R" if (status, charset != "zlib") == (200, True) else counts["faults/engine"] == 1


def test_no_prompt_goes_where_a_server_points_to(stranger: Callable[..., Any]) -> None:
    other = stranger()
    said, _ = ask(stranger(status=307, headers_sent=(("location", other.url + "/chat/completions"),)).url)
    assert "HTTP 307" in said and not other.asked


def test_a_million_choices(stranger: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ALWAYS", 1 << 20)
    choice = b'{"message":{"content":"R"},"finish_reason":"stop"},'
    said, _ = ask(stranger(body=b'{"choices":[', filler=choice * 1000, size=ENDLESS).url)
    assert "the answer has more than 1,049,216 bytes" in said
