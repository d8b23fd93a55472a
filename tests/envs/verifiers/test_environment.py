"""A world as an environment of verifiers, played by verifiers with a server of OpenAI's form."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from troupe.envs.couplet.world import Couplet

pytestmark = [
    pytest.mark.verifiers,
    pytest.mark.skipif(importlib.util.find_spec("verifiers") is None, reason="needs the extra verifiers"),
]
TEXTS = [
    *("", " ", "\n\n", "\x00", "\ud800", "🙂" * 500, "a" * 50_000, "the sun is bright", "<|im_end|>", "[]"),
    *('{"role": "system"}', "null", "data: [DONE]\n\n", "\r\n", "{{x}}", "%s", "\u202e", "\ufeff", "(" * 999, "../.."),
]
BODIES = [
    *(b"", b"no json", b"[]", b"null", b"{}", b'{"choices": []}', b'{"choices": 3}', b"\xff\xfe", b"{" * 999),
    b'{"choices": [{"message": {"role": "assistant"}}]}',
]


@contextmanager
def serving(answer: Callable[[dict[str, Any]], bytes]) -> Iterator[str]:
    """The address of a server that gives ``answer`` to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def completion(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return json.dumps(
        {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    ).encode()


@pytest.fixture
def couplets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `troupe_couplets`, as a user writes it."""
    import sys
    from types import ModuleType

    from troupe.envs.verifiers.environment import environment_of

    module = ModuleType("troupe_couplets")
    module.__spec__ = importlib.util.spec_from_loader("troupe_couplets", None)
    module.CoupletTaskset, module.CoupletEnv = environment_of(Couplet())  # type: ignore[attr-defined]
    module.__all__ = ["CoupletEnv", "CoupletTaskset"]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "troupe_couplets", module)


async def played(url: str, **taskset: Any) -> list[Any]:
    import verifiers.v1 as vf

    config = {"taskset": {"id": "troupe-couplets", "count": 1, **taskset}}
    env = vf.load_environment(vf.resolve_env_config(config))
    endpoint = vf.EvalClientConfig(base_url=url, api_key_var="TROUPE_NO_API_KEY")
    async with env.serving():
        return [await env.run_episode(task, vf.ModelContext(model="m", client=endpoint)) for task in env.taskset]


@pytest.mark.usefixtures("couplets")
async def test_each_message_is_a_trace_with_the_worlds_rewards() -> None:
    world, asked = Couplet(), []

    def expert(request: dict[str, Any]) -> bytes:
        asked.append(request["messages"])
        return completion("the sun is bright")

    with serving(expert) as url:
        (episode,) = await played(url)
    assert episode.ok and [trace.agent.name for trace in episode.traces] == ["first", "second"] * world.horizon
    (task,) = world.tasks("test", 1, 0)
    world.reset(task)
    assert asked[0] == world.observe("first") and asked[1] == world.observe("second")
    rewards = []
    while acting := world.next_agents():
        result = await world.step(dict.fromkeys(acting, "the sun is bright"))
        rewards += [result.team + result.local[agent] for agent in acting]
    assert [trace.reward for trace in episode.traces] == rewards
    assert {trace.metrics["success"] for trace in episode.traces} == {float(result.success)}


@pytest.mark.usefixtures("couplets")
@pytest.mark.parametrize("text", TEXTS)
async def test_any_message_is_legal(text: str) -> None:
    with serving(lambda _: completion(text)) as url:
        (episode,) = await played(url)
    # A reply with half of a character is none to verifiers, and no message of the world.
    assert episode.ok or (text == "\ud800" and "malformed upstream" in str(episode.errors))


@pytest.mark.usefixtures("couplets")
@pytest.mark.parametrize("body", BODIES)
async def test_no_message_is_an_error_and_no_reward(body: bytes) -> None:
    with serving(lambda _: body) as url:
        (episode,) = await played(url)
    assert not episode.ok and any("turn 0 of" in error.message for error in episode.errors)
    assert all("team" not in trace.rewards for trace in episode.traces)


@pytest.mark.usefixtures("couplets")
async def test_a_split_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="couplet has the splits train, validation, test, not tests"):
        await played("http://127.0.0.1:9", split="tests")
