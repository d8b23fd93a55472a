"""What the gateway answers where it fails itself."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from troupe.gateway.protocol import ChatReply, ChatRequest
from troupe.gateway.server import Gateway


class Failing:
    """Episodes that fail with every call."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def agents(self, episode: str | None) -> Sequence[str]:
        return ["ann"]

    async def answer(self, episode: str | None, request: ChatRequest) -> ChatReply:
        raise KeyError("lost")

    def refused(self, episode: str | None, model: Any, code: str) -> None:
        self.counts[f"{episode} {model} {code}"] += 1


async def test_an_error_of_the_gateway_is_one_of_openais() -> None:
    body = json.dumps({"model": "ann", "messages": [{"role": "user", "content": "?"}]}).encode()
    scope = {"type": "http", "path": "/episodes/e/v1/chat/completions", "method": "POST", "headers": []}
    pending = [{"type": "http.request", "body": body}]
    sent: list[Any] = []

    async def receive() -> Any:
        return pending.pop() if pending else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    episodes = Failing()
    await Gateway(episodes)(scope, receive, send)
    assert sent[0]["status"] == 500 and episodes.counts == {"e ann internal_error": 1}
    error = json.loads(sent[1]["body"])["error"]
    assert (error["code"], error["type"]) == ("internal_error", "server_error") and "KeyError: 'lost'" in error[
        "message"
    ]
