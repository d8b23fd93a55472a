"""What an engine of vLLM tells of a completion that is being written; without vLLM."""

import asyncio
from types import SimpleNamespace
from typing import Any

from troupe.experience import Request, Sampling
from troupe.rollout.engines.vllm.server import EngineServer, Pending


class Queue:
    """What vLLM would give, one output after another."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs = list(outputs)

    async def get(self) -> Any:
        return self.outputs.pop(0)


def output(tokens: list[int], finished: bool) -> Any:
    logprobs = SimpleNamespace(logprobs=[-float(token) for token in tokens])
    return SimpleNamespace(outputs=[SimpleNamespace(index=0, token_ids=tokens, logprobs=logprobs)], finished=finished)


async def test_each_token_is_told_once_and_the_last_output_is_the_answer() -> None:
    told: list[tuple[int, int, float]] = []
    request = Request("p", (1,), 1, Sampling(), 0, on_token=lambda *token: told.append(token))
    server: Any = object.__new__(EngineServer)

    async def alive(work: Any) -> Any:
        return await work

    server._alive, server._llm = alive, None
    server.expected = SimpleNamespace(policies={"p": SimpleNamespace(version=3)})
    server.replies = SimpleNamespace(
        completions=lambda request, output, version: (output.outputs[0].token_ids, version)
    )
    pending = Pending(request, asyncio.get_running_loop().create_future())
    pending.server = server
    pending.queue = Queue(output([4], False), output([4, 5, 6], False), output([4, 5, 6, 7], True))
    assert await server.answer(pending) == ([4, 5, 6, 7], 3)
    assert told == [(0, 4, -4.0), (1, 5, -5.0), (2, 6, -6.0), (3, 7, -7.0)]
