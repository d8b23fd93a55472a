"""What the gateway sends: streams that grow, that fail, and whose reader is gone; sessions; its own failures."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from troupe.gateway.protocol import ChatReply, ChatRequest, Draft, invalid
from troupe.gateway.server import Gateway

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "?"}]},
    "responses": {"input": "?"},
    "messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "?"}]},
}
Play = Callable[[Draft], Any]


class Episodes:
    """``play`` writes the reply; what it was asked, and what was refused."""

    def __init__(self, play: Play) -> None:
        self.play, self.counts = play, Counter[str]()
        self.sessions: list[str] = []

    def agents(self, episode: str | None) -> Sequence[str]:
        return ["ann"]

    async def answer(self, episode: str | None, request: ChatRequest, draft: Draft) -> ChatReply:
        self.sessions.append(request.session)
        reply: ChatReply = await self.play(draft)
        return reply

    def refused(self, episode: str | None, model: Any, code: str) -> None:
        self.counts[f"{episode} {model} {code}"] += 1


class Caller:
    """A connection: ``sent`` has what came, ``gone`` ends it."""

    def __init__(
        self, what: str = "chat/completions", headers: Sequence[tuple[bytes, bytes]] = (), **keys: Any
    ) -> None:
        self.scope = {"type": "http", "path": f"/episodes/e/v1/{what}", "method": "POST", "headers": headers}
        self._pending = [
            {"type": "http.request", "body": json.dumps({"model": "ann", **BODIES[what], **keys}).encode()}
        ]
        self.sent: list[Any] = []
        self.gone, self.came = asyncio.Event(), asyncio.Event()

    async def ask(self, episodes: Episodes) -> None:
        await Gateway(episodes)(self.scope, self._receive, self._send)

    async def _receive(self) -> Any:
        if self._pending:
            return self._pending.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self.came.set()

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = [line.removeprefix("data: ") for line in self.text.splitlines() if line.startswith("data: {")]
        return [json.loads(line) for line in lines]

    def __aiter__(self) -> AsyncIterator[None]:
        return self

    async def __anext__(self) -> None:
        await self.came.wait()
        self.came.clear()


@pytest.mark.parametrize("what", BODIES)
async def test_pieces_are_sent_as_they_are_written(what: str) -> None:
    caller, go_on = Caller(what, stream=True), asyncio.Event()

    async def play(draft: Draft) -> ChatReply:
        for place, text in enumerate(("he", "hell")):
            draft.write(place, (text, -0.5), text)
            await go_on.wait()
            go_on.clear()
        return ChatReply("hello", (), "stop", 1, 3, (("he", -0.5), ("ll", -0.5), ("o", -0.5)))

    asking = asyncio.create_task(caller.ask(Episodes(play)))
    for piece in ("he", "ll"):
        while f'"{piece}"' not in caller.text:
            await anext(caller)
        go_on.set()
    await asking
    assert caller.sent[0]["status"] == 200 and f'"{"o"}"' in caller.text and not caller.sent[-1].get("more_body")


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("begun", [False, True])
async def test_an_error_is_of_the_form_that_asked(what: str, begun: bool) -> None:
    async def play(draft: Draft) -> ChatReply:
        if begun:
            draft.write(0, ("he", -0.5), "he")
            while "he" not in caller.text:
                await anext(caller)
        raise KeyError("lost")

    episodes, caller = Episodes(play), Caller(what, stream=True)
    await caller.ask(episodes)
    assert episodes.counts == {"e ann internal_error": 1}
    assert caller.sent[0]["status"] == (200 if begun else 500)
    last = caller.events[-1] if begun else json.loads(caller.text)
    error = last if what == "responses" and begun else last["error"]
    assert error["code"] == "internal_error" and "KeyError: 'lost'" in error["message"]
    assert (last.get("type") == "error") == (what == "messages" or (what == "responses" and begun))


async def test_a_message_that_begins_anew_as_another_one_is_an_error() -> None:
    async def play(draft: Draft) -> ChatReply:
        for text in ("he", "she"):
            draft.write(0, (text, -0.5), text)
            while f'"{text[:2]}' not in caller.text and text == "he":
                await anext(caller)
        return ChatReply("she")

    episodes, caller = Episodes(play), Caller(stream=True)
    await caller.ask(episodes)
    assert episodes.counts == {"e ann stream_changed": 1} and caller.events[-1]["error"]["code"] == "stream_changed"


@pytest.mark.parametrize("what", BODIES)
async def test_a_reader_that_is_gone_is_counted_and_its_answer_cancelled(what: str) -> None:
    cancelled = asyncio.Event()

    async def play(draft: Draft) -> ChatReply:
        draft.write(0, ("he", -0.5), "he")
        try:
            return await asyncio.Event().wait()  # type: ignore[return-value]
        except asyncio.CancelledError:
            cancelled.set()
            raise

    episodes, caller = Episodes(play), Caller(what, stream=True)
    asking = asyncio.create_task(caller.ask(episodes))
    while '"he"' not in caller.text:
        await anext(caller)
    caller.gone.set()
    await asking
    await cancelled.wait()
    assert episodes.counts == {"e ann disconnected": 1}


async def test_log_probabilities_that_nobody_has_are_refused() -> None:
    async def play(draft: Draft) -> ChatReply:
        return ChatReply("hello")

    episodes, caller = Episodes(play), Caller(logprobs=True)
    await caller.ask(episodes)
    assert json.loads(caller.text)["error"]["param"] == "logprobs" and episodes.counts == {"e ann invalid_value": 1}


async def _hello(draft: Draft) -> ChatReply:
    return ChatReply("hello")


LONG = "x" * 64


@pytest.mark.parametrize("session", ["a", "a/b", "a/b/c", "lead-1.x/_", LONG, "/".join([LONG] * 16), "..", "a/../b"])
async def test_a_session_is_a_path_of_names(session: str) -> None:
    """``..`` is a name as others are: no file has it."""
    episodes, caller = Episodes(_hello), Caller(headers=[(b"x-troupe-session", session.encode())])
    await caller.ask(episodes)
    assert episodes.sessions == [session] and caller.sent[0]["status"] == 200


HOSTILE = [
    *("", "/", "//", "/a", "a/", "a//b", "a/b/", " a", "a ", "a b", "a\tb", "a\nb", "a\x00", "a\\b", "a:b", "a?b"),
    *("a#b", "a%2fb", "a&b", "a;b", "a,b", "a'b", 'a"b', "<a>", "{a}", "\xe4", "\xff\xfe", "a\u2028".encode()),
    *(f"{LONG}x", "/".join([LONG] * 17), "/".join("abcdefghijklmnopq"), "a" * 100_000, "/" * 100_000, "a\r\nb", "a\n"),
]


@pytest.mark.parametrize("session", HOSTILE, ids=range(len(HOSTILE)))
async def test_a_session_that_is_no_path_is_refused(session: str | bytes) -> None:
    sent = session if isinstance(session, bytes) else session.encode("latin-1")
    episodes, caller = Episodes(_hello), Caller(headers=[(b"x-troupe-session", sent)])
    await caller.ask(episodes)
    assert json.loads(caller.text)["error"]["param"] == "x-troupe-session" and not episodes.sessions
    assert episodes.counts == {"e ann invalid_value": 1} and len(caller.text) < 500


async def test_two_sessions_at_once_are_refused() -> None:
    episodes, caller = Episodes(_hello), Caller(headers=[(b"x-troupe-session", b"a"), (b"x-troupe-session", b"b")])
    await caller.ask(episodes)
    assert json.loads(caller.text)["error"]["param"] == "x-troupe-session" and not episodes.sessions


async def test_a_refusal_of_who_answers_is_passed_on() -> None:
    async def play(draft: Draft) -> ChatReply:
        raise invalid("messages", "too long")

    caller = Caller("messages", stream=True)
    await caller.ask(Episodes(play))
    error = json.loads(caller.text)
    assert caller.sent[0]["status"] == 400 and error["error"]["type"] == "invalid_request_error"
