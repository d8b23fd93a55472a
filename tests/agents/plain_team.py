"""A team of three in plain Python and OpenAI's client: two scouts, asked at once, and a chief who reads their notes."""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI

from troupe.envs.signalling.world import Signalling
from troupe.envs.workflow import ClientForAgent
from troupe.experience import Split, Task


def tasks(split: Split, count: int, seed: int) -> list[Task]:
    return Signalling(horizon=1, length=2).tasks(split, count, seed)


async def ask(client_for_agent: ClientForAgent, agent: str, role: str, words: str) -> str:
    client = client_for_agent(agent)
    messages = [{"role": "system", "content": role}, {"role": "user", "content": words}]
    async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as caller:
        reply = await caller.chat.completions.create(model=client.model, messages=messages)  # type: ignore[arg-type]
    return reply.choices[0].message.content or "malformed"


async def solve(task: Task, client_for_agent: ClientForAgent) -> float:
    """The share of colours that the chief names; each scout sees one."""
    target = task.data["target"]
    notes = await asyncio.gather(
        *(
            ask(client_for_agent, scout, "sender signalling", f"colours {colour} before none guess none")
            for scout, colour in zip(("left", "right"), target, strict=True)
        )
    )
    words = f"message {' '.join(notes)} before none guess none"
    guess = (await ask(client_for_agent, "chief", "receiver signalling", words)).split()
    return sum(a == b for a, b in zip(guess, target, strict=False)) / len(target) if len(guess) == len(target) else 0.0
