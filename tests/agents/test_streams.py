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
    """``heard``: by task, the pieces of each reply.  ``logprobs``: by task, those of each token of a reply."""

    def __init__(self) -> None:
        self.heard: dict[str, list[list[str]]] = defaultdict(list)
        self.logprobs: dict[str, list[list[float]]] = defaultdict(list)

    async def play(self, task: Task, client_for_agent: ClientForAgent) -> float:
        client, heard, logprobs = client_for_agent("ann"), self.heard[task.task_id], self.logprobs[task.task_id]
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
            said, probable = await _response(openai)
        elif kind == "messages":
            said, probable = [piece async for piece in _message(client)], []
        elif kind == "whole":
            reply = await openai.chat.completions.create(model="ann", messages=ASKED, logprobs=True)
            said = [reply.choices[0].message.content or ""]
            probable = [each.logprob for each in reply.choices[0].logprobs.content]  # type: ignore[union-attr]
        else:
            said, probable = await _chat(openai)
        heard.append(said)
        logprobs.append(probable)
        return 1.0


async def _chat(openai: Any) -> tuple[list[str], list[float]]:
    said, logprobs = [], []
    async for chunk in await openai.chat.completions.create(model="ann", messages=ASKED, stream=True, logprobs=True):
        for choice in chunk.choices:
            said.append(choice.delta.content or "")
            logprobs += [each.logprob for each in (choice.logprobs.content if choice.logprobs else [])]
    return said, logprobs


async def _response(openai: Any) -> tuple[list[str], list[float]]:
    include: Any = ["message.output_text.logprobs"]
    said, logprobs = [], []
    async for event in await openai.responses.create(model="ann", input=ASKED, stream=True, include=include):
        if event.type == "response.output_text.delta":
            said.append(event.delta)
            logprobs += [each.logprob for each in event.logprobs]
        if event.type in ("response.completed", "response.incomplete"):
            assert event.response.output_text == "".join(said)
            assert [each.logprob for each in event.response.output[0].content[0].logprobs] == logprobs
    return said, logprobs


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
        ((said,), (logprobs,)) = programs.heard[task], programs.logprobs[task]
        assert "".join(said) == completions[-1].text, task
        assert kind == "messages" or tuple(logprobs) == completions[-1].logprobs, task


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
    for kind in ("chat", "responses", "messages"):
        heard = [programs.heard[each.task.task_id][0] for each in episodes if each.task.data["kind"] == kind]
        assert max(len(list(filter(None, pieces))) for pieces in heard) > 1, f"{kind}: in one piece"
