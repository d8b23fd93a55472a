"""The ways in which a program asks, what it is told of a reply, and when it ends."""

import asyncio
import gc
import resource
import threading
from typing import Any

import openai
import pytest

from troupe.envs.history import WithHistory
from troupe.envs.workflow import ClientForAgent, WorkflowWorld
from troupe.envs.workflow.service import Service
from troupe.evaluation.episodes import PolicyActor, play
from troupe.experience import Completion, Episode, Request, Sampling, Split, Task
from troupe.gateway.guard import RefusedError
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.chat_codec import ChatCodec
from troupe.rollout.engines.base import RequestFailedError
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.playing import gather, start_env
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.scripted import ScriptedEngine
from troupe.runs.metrics import rollout_metrics

TASK = Task("t", "train", {})
ADD = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
ASKED: Any = [{"role": "system", "content": "sender signalling"}, {"role": "user", "content": "colours red"}]


def tasks(split: Split, count: int, seed: int) -> list[Task]:
    return [Task(f"{split}-{i}", split, {}) for i in range(count)]


def world(workflow: Any, **settings: Any) -> WorkflowWorld:
    return WorkflowWorld(workflow=workflow, tasks=tasks, agents=["ann", "bob"], horizon=5, **settings)


async def test_responses_of_openais_own_client() -> None:
    async def calculator(task: Task, client_for_agent: ClientForAgent) -> float:
        responses = client_for_agent("ann").openai().responses
        with pytest.raises(openai.BadRequestError, match="keeps no responses; send the whole") as refused:
            await responses.create(model="ann", input="?", previous_response_id="resp_0")
        assert refused.value.body["param"] == "previous_response_id"  # type: ignore[index]
        said: Any = [{"role": "user", "content": "1 + 2?"}]
        asked: Any = {"model": "ann", "instructions": "Be short.", "tools": [ADD]}
        first = await responses.create(**asked, input=said)
        call = first.output[1]
        assert call.type == "function_call" and call.name == "add" and first.output_text == "I add."
        said += [item.model_dump(exclude_none=True, exclude={"status", "id"}) for item in first.output]
        said += [{"type": "function_call_output", "call_id": call.call_id, "output": "3"}]
        text, done = "", None
        async with responses.stream(**asked, input=said) as stream:
            async for event in stream:
                text += event.delta if event.type == "response.output_text.delta" else ""
            done = await stream.get_final_response()
        return float(text == done.output_text == "3" and done.status == "completed")

    env = await start_env(world(calculator, tools="hermes"), TASK)
    said = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"terms": [1, 2]}}\n</tool_call>'
    assert [each["role"] for each in env.observe("ann")] == ["system", "user"]
    assert (await env.step({"ann": said})).info["refused_requests"] == 1
    seen = [(each["role"], each["content"]) for each in env.observe("ann")]
    assert seen == [("system", "Be short."), ("user", "1 + 2?"), ("assistant", said), ("tool", "3")]
    assert (await env.step({"ann": "3"})).success
    await env.close()


async def test_a_client_without_a_server_in_between() -> None:
    async def plain(task: Task, client_for_agent: ClientForAgent) -> float:
        ann = client_for_agent("ann")
        with pytest.raises(RefusedError, match=r"^n: the gateway understands only 1 here, got 2"):
            await ann.chat(ASKED, n=2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ann.chat(ASKED), 0.2)
        reply = await ann.chat(ASKED)  # the same request: the same call
        return float(reply == {"role": "assistant", "content": "yes"})

    env = await start_env(world(plain), TASK)
    assert env._lease is not None
    async with asyncio.timeout(30):
        while env._lease.run._refusals["ann"] < 2:
            await asyncio.sleep(0.01)
    result = await env.step({"ann": "yes"})
    assert result.success and result.info["refused_requests"] == 2
    await env.close()


async def test_a_client_has_a_connection_only_while_it_waits() -> None:
    async def many(task: Task, client_for_agent: ClientForAgent) -> float:
        for agent in ("ann", "bob", "ann", "bob"):
            await client_for_agent(agent).openai().chat.completions.create(model=agent, messages=ASKED)
        return 1.0

    env = await start_env(world(many), TASK)
    server: Any = env._service._server
    async with asyncio.timeout(30):
        for agent in ("ann", "bob", "ann", "bob"):
            while len(server._server.server_state.connections) != 1:
                await asyncio.sleep(0.01)
            await env.step({agent: "yes"})
    await env.close()


def test_a_server_may_open_as_many_files_as_the_system_lets_it() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    service = Service(["ann"])
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1] - 1, limits[1]))
        service.start()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])
    finally:
        service.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the socket of the stream
@pytest.mark.parametrize("thread", [False, True])
async def test_clients_in_event_loops_of_the_program_are_closed(thread: bool) -> None:
    """Also where one has a stream that was not read to its end."""
    clients: list[openai.AsyncOpenAI] = []

    async def ask(client_for_agent: ClientForAgent, stream: bool) -> None:
        clients.append(client_for_agent("ann").openai())
        await clients[-1].chat.completions.create(model="ann", messages=ASKED, stream=stream)

    def plain(task: Task, client_for_agent: ClientForAgent) -> float:
        for stream in (True, False):
            asyncio.run(ask(client_for_agent, stream))
        return 1.0

    async def in_a_thread(task: Task, client_for_agent: ClientForAgent) -> float:
        return await asyncio.to_thread(plain, task, client_for_agent)

    env = await start_env(world(in_a_thread if thread else plain), TASK)
    await env.step({"ann": "yes"})
    assert (await env.step({"ann": "yes"})).success
    assert [client.is_closed() for client in clients] == [True, True]
    await env.close()
    clients.clear()
    gc.collect()


def players(script: Any, max_tokens: int = 4) -> dict[str, PolicyClient]:
    tokenizer = load_tokenizer("laptop_signalling")
    engine = script if isinstance(script, ScriptedEngine) else ScriptedEngine(script, tokenizer)
    return dict.fromkeys(("ann", "bob"), PolicyClient("p", engine, tokenizer, 64, Sampling(max_tokens=max_tokens)))


async def test_a_reply_says_in_training_how_it_ended_and_what_it_cost() -> None:
    told: list[Any] = []

    async def two(task: Task, client_for_agent: ClientForAgent) -> float:
        client = client_for_agent("ann").openai()
        for _ in range(2):
            reply = await client.chat.completions.create(model="ann", messages=ASKED)
            assert reply.usage is not None
            told.append((reply.choices[0].finish_reason, reply.usage.prompt_tokens, reply.usage.completion_tokens))
        other = await client.responses.create(model="ann", input="colours red")
        assert other.usage is not None and other.incomplete_details is not None
        told.append((other.incomplete_details.reason, other.usage.input_tokens, other.usage.output_tokens))
        return 1.0

    env, texts = world(two), iter(["ba di ku", "ba di ku mo", "ba di ku mo"])
    await env.open()
    ((episode,),) = await ChainSampler(k=1).collect(
        env, env.tasks("train", 1, 0), players(lambda *_: next(texts)), seed=0
    )
    assert episode.failure is None
    ends = ["stop", "length", "max_output_tokens"]
    assert told == [(end, len(node.prompt_ids), 4) for end, node in zip(ends, episode.nodes, strict=True)]
    await env.close()


class Server(ScriptedEngine):
    """Answers without tokens."""

    async def generate(self, request: Request) -> list[Completion]:
        self.requests.append(request)
        return [Completion((), (), "ba", "stop", request.policy, 0)]


@pytest.mark.parametrize("pure", [True, False])
async def test_log_probabilities_of_a_servers_policy_are_refused_before_it_is_asked(pure: bool) -> None:
    """In training, in evaluations and without HTTP; the program goes on."""

    async def asking(task: Task, client_for_agent: ClientForAgent) -> float:
        client = client_for_agent("ann")
        for ask in (client.openai().chat.completions.create, client.chat):
            keys: Any = {"model": "ann"} if ask != client.chat else {}
            with pytest.raises((openai.BadRequestError, RefusedError), match="agent 'ann' has none: its policy is"):
                await ask(messages=ASKED, logprobs=True, **keys)
        await client.chat(ASKED)
        return 1.0

    env, engine = WithHistory(world(asking, pure=pure)), Server({}, load_tokenizer("laptop_signalling"))
    client = PolicyClient("p", engine, ChatCodec(), 1000, Sampling())
    await env.open()
    ((episode,),) = await ChainSampler(k=1).collect(env, env.tasks("train", 1, 0), {"ann": client, "bob": client}, 0)
    assert episode.failure is None and len(engine.requests) == len(episode.nodes) == 1
    assert episode.nodes[0].candidates[0].info["refused_requests"] == 2
    result = await play(env, TASK, {"ann": PolicyActor(client)}, 0)
    assert result.success and len(engine.requests) == 2
    await env.close()


class Broken(ScriptedEngine):
    """Answers once."""

    async def generate(self, request: Request) -> list[Completion]:
        if self.requests:
            raise RequestFailedError("the engine is gone")
        return await super().generate(request)


@pytest.mark.parametrize("pure", [True, False])
async def test_the_program_of_a_lost_episode_ends_at_once(pure: bool) -> None:
    """While the failure, with its error, is still held."""
    ended = threading.Event()

    async def waiting(task: Task, client_for_agent: ClientForAgent) -> float:
        try:
            await client_for_agent("ann").chat(ASKED)
            await client_for_agent("bob").chat(ASKED)
        finally:
            ended.set()
        return 1.0

    env, clients = world(waiting, pure=pure), players(Broken(lambda *_: "ba", load_tokenizer("laptop_signalling")))

    async def play() -> list[list[Episode]]:
        return await ChainSampler(k=1).collect(env, env.tasks("train", 1, 0), clients, seed=0)

    await env.open()
    (((episode,),),) = await gather(play())
    assert episode.failure is not None and "the engine is gone" in episode.failure.message
    assert await asyncio.to_thread(ended.wait, 10) and episode.failure.error is not None
    assert not env._service._runs
    await env.close()


async def test_a_program_that_waits_holds_nobody_of_an_engine_that_runs_free() -> None:
    """It goes on when all others have ended; in lockstep these would wait for it."""
    others: list[str] = []

    async def waiting(task: Task, client_for_agent: ClientForAgent) -> float:
        await client_for_agent("ann").chat(ASKED)
        while task.task_id == "train-0" and len(others) < 3:
            await asyncio.sleep(0.01)
        await client_for_agent("bob").chat(ASKED)
        others.append(task.task_id)
        return 1.0

    tokenizer = load_tokenizer("laptop_signalling")
    engine = TorchEngine({"p": load_model("laptop_signalling").eval()}, tokenizer, lockstep=False)
    clients = dict.fromkeys(("ann", "bob"), PolicyClient("p", engine, tokenizer, 64, Sampling(max_tokens=4)))
    env = world(waiting)
    await env.open()
    played = await ChainSampler(k=1).collect(env, env.tasks("train", 4, 0), clients, seed=0)
    assert [episode.failure for (episode,) in played] == [None] * 4 and others[-1] == "train-0"
    await env.close()
    await engine.close()


async def test_of_programs_that_fail_each_costs_its_own_episode() -> None:
    async def each(task: Task, client_for_agent: ClientForAgent) -> float:
        client, number = client_for_agent("ann"), int(task.task_id.rpartition("-")[2])
        if number == 1:
            with pytest.raises(RefusedError, match="must be a list of at least one message"):
                await client.chat([])
        await client.chat(ASKED)
        if number == 2:
            await asyncio.Event().wait()
        if number == 3:
            raise LookupError("nothing there")
        await client_for_agent("bob").chat(ASKED)
        return 1.0

    env = world(each, limit_s=0.5)
    await env.open()
    played = await ChainSampler(k=2).collect(env, env.tasks("train", 4, 0), players(lambda *_: "ba"), seed=0)
    episodes = [episode for episodes in played for episode in episodes]
    assert [len(episode.nodes) for episode in episodes] == [2, 2, 2, 2, 0, 0, 0, 0]
    assert all(episode.failure and episode.failure.kind == "world" for episode in episodes[4:])
    row = rollout_metrics(episodes, 1.0)
    assert row["rollout/lost_episodes"] == 4 and row["rollout/ann/refused_requests"] == 0.5
    assert row["rollout/success"] == 1.0 and not env._service._runs
    await env.close()
