"""Many programs at once that stream, break off, ask wrongly or hang, in all forms: nothing is lost, all is recorded."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import BadRequestError

from troupe.envs.workflow import ClientForAgent, WorkflowWorld
from troupe.envs.workflow.client import AgentClient
from troupe.experience import Completion, Episode, Sampling, Split, Task
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler

ASKED: Any = [{"role": "user", "content": "colours red blue before none guess none"}]
KINDS = ("chat", "responses", "messages", "whole", "breaks", "malformed", "children", "hangs")
BASE = "laptop_signalling"


def tasks(split: Split, count: int, seed: int) -> list[Task]:
    return [Task(f"{i}-{kind}", split, {"kind": kind}) for i, kind in zip(range(count), itertools.cycle(KINDS))]


class Programs:
    """``heard``: by task, its replies."""

    def __init__(self) -> None:
        self.heard: dict[str, list[str]] = defaultdict(list)

    async def play(self, task: Task, client_for_agent: ClientForAgent) -> float:
        client, heard = client_for_agent("ann"), self.heard[task.task_id]
        openai, kind = client.openai(), task.data["kind"]
        if kind == "hangs":
            await openai.chat.completions.create(model="ann", messages=ASKED)
            await asyncio.Event().wait()
        if kind == "breaks":
            async with await openai.chat.completions.create(model="ann", messages=ASKED, stream=True) as broken:
                await anext(aiter(broken))
        if kind == "malformed":
            for wrong in ({"n": 2}, {"top_logprobs": 3}, {"stream": "yes"}):
                with pytest.raises(BadRequestError, match=next(iter(wrong))):
                    await openai.chat.completions.create(model="ann", messages=ASKED, extra_body=wrong)
        if kind == "children":
            for session in ("lead", "lead/one", "lead/two"):
                again = openai.with_options(default_headers={"x-troupe-session": session})
                await again.chat.completions.create(model="ann", messages=ASKED)
            return 1.0
        if kind == "responses":
            said = await _response(openai)
        elif kind == "messages":
            said = "".join([piece async for piece in _message(client)])
        elif kind == "whole":
            reply = await openai.chat.completions.create(model="ann", messages=ASKED)
            said = reply.choices[0].message.content or ""
        else:
            said = await _chat(openai)
        heard.append(said)
        return 1.0


async def _chat(openai: Any) -> str:
    said = []
    async for chunk in await openai.chat.completions.create(model="ann", messages=ASKED, stream=True):
        said += [choice.delta.content or "" for choice in chunk.choices]
    return "".join(said)


async def _response(openai: Any) -> str:
    said = []
    async for event in await openai.responses.create(model="ann", input=ASKED, stream=True):
        if event.type == "response.output_text.delta":
            said.append(event.delta)
        if event.type in ("response.completed", "response.incomplete"):
            assert event.response.output_text == "".join(said)
    return "".join(said)


async def _message(client: AgentClient) -> AsyncIterator[str]:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

    url, http = client.base_url.removesuffix("/v1"), DefaultAsyncHttpxClient(trust_env=False)
    async with (
        AsyncAnthropic(base_url=url, api_key=client.api_key, max_retries=0, http_client=http) as anthropic,
        anthropic.messages.stream(model="ann", max_tokens=99, messages=ASKED) as stream,
    ):
        async for text in stream.text_stream:
            yield text
        final = await stream.get_final_message()
    assert final.stop_reason in ("end_turn", "max_tokens") and final.usage.output_tokens


async def _played(programs: Programs, count: int, limit_s: float) -> tuple[list[Episode], Any]:
    world = WorkflowWorld(workflow=programs.play, tasks=tasks, agents=["ann"], horizon=4, limit_s=limit_s)
    await world.open()
    tokenizer = load_tokenizer(BASE)
    engine = TorchEngine({"p": load_model(BASE).eval()}, tokenizer, lockstep=False)
    client = PolicyClient("p", engine, tokenizer, 512, Sampling(max_tokens=10))
    played = await ChainSampler(k=1).collect(world, world.tasks("train", count, 0), {"ann": client}, 0)
    refusals = dict(world._service.refusals)
    await world.close()
    await engine.close()
    return [episode for (episode,) in played], refusals


def said_in(episode: Episode) -> list[Completion]:
    return [candidate.completion for _, candidate in episode.candidates()]


def check(episodes: list[Episode], programs: Programs) -> None:
    for episode in (each for each in episodes if each.task.data["kind"] != "hangs"):
        task, kind, completions = episode.task.task_id, episode.task.data["kind"], said_in(episode)
        assert episode.failure is None, task
        assert len(completions) == {"breaks": len(completions), "children": 3}.get(kind, 1)
        if kind == "children":
            assert [node.session for node in episode.nodes] == ["lead", "lead/one", "lead/two"]
            continue
        assert programs.heard[task] == [completions[-1].text], task


@pytest.mark.agents
async def test_programs_that_stream_break_off_ask_wrongly_or_hang() -> None:
    import anthropic  # noqa: F401  # seconds, on a busy machine, that are not within the limit of the first program

    programs = Programs()
    episodes, refusals = await _played(programs, 64, 20)
    check(episodes, programs)
    lost = [each for each in episodes if each.failure is not None]
    assert [each.task.data["kind"] for each in lost] == ["hangs"] * 8
    assert all("env.limit_s=20" in each.failure.message for each in lost if each.failure is not None)
    assert refusals.pop(("ann", "invalid_value")) == 3 * 8
    assert set(refusals) <= {("ann", "disconnected")}  # the replies that were whole before the connection broke are not
