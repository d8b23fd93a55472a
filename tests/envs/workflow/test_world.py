"""Programs as worlds: calls in any order, rewards, tools, and programs and requests that fail."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import openai
import pytest

from troupe.envs.base import StepResult
from troupe.envs.workflow import ClientForAgent, WorkflowResult, WorkflowWorld
from troupe.envs.workflow.run import PendingCall, WorkflowRun
from troupe.envs.workflow.service import Service
from troupe.envs.workflow.world import WorkflowFailure
from troupe.errors import ConfigError
from troupe.evaluation.episodes import EpisodeResult, play
from troupe.evaluation.summary import summarise
from troupe.experience import Split, Task
from troupe.gateway.guard import RefusedError
from troupe.gateway.protocol import ChatMessage, ChatReply, ChatRequest, Draft
from troupe.reports.episodes import session_of
from troupe.reports.explorer import episode_tree
from troupe.rollout.playing import Answer, start_env
from troupe.rollout.samplers.task_rollout import advance

TASK = Task("t", "train", {"word": "hello"})
ASKED: Any = [{"role": "user", "content": "?"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


def tasks(split: Split, count: int, seed: int) -> list[Task]:
    return [Task(f"{split}-{seed}-{i}", split, {"word": str(i)}) for i in range(count)]


def world(workflow: Callable[..., Any], /, **settings: Any) -> WorkflowWorld:
    return WorkflowWorld(**{"workflow": workflow, "tasks": tasks, "agents": ["ann", "bob"], "horizon": 3} | settings)


async def say(client_for_agent: ClientForAgent, agent: str, text: str, **keys: Any) -> str:
    client = client_for_agent(agent)
    messages = [{"role": "user", "content": text}]
    reply = await client.openai().chat.completions.create(model=client.model, messages=messages, **keys)
    return str(reply.choices[0].message.content)


async def through(env: WorkflowWorld, *texts: str) -> list[tuple[str, str, StepResult]]:
    """Play from the start with these messages: (agent, what it saw, what its message led to)."""
    env, steps = await start_env(env, TASK), []
    for text in texts:
        (agent,) = env.next_agents()
        saw = env.observe(agent)[-1]["content"]
        steps.append((agent, saw, await env.step({agent: text})))
    assert steps[-1][2].done == (not env.next_agents())
    return steps


async def duet(task: Task, client_for_agent: ClientForAgent) -> WorkflowResult:
    note = await say(client_for_agent, "ann", task.data["word"])
    client_for_agent("ann").reward(local=0.5, note_length=len(note))
    answer = await say(client_for_agent, "bob", note)
    again = await say(client_for_agent, "ann", answer)
    return WorkflowResult(1.0 if again == "yes" else 0.25, info={"answers": 2.0})


async def test_calls_are_turns_with_rewards() -> None:
    env = world(duet)
    first, second, third = await through(env, "a note", "an answer", "yes")
    assert [step[:2] for step in (first, second, third)] == [("ann", "hello"), ("bob", "a note"), ("ann", "an answer")]
    assert first[2].local == {"ann": 0.5} and first[2].team == 0.0 and first[2].info["note_length"] == 6
    assert second[2].local == {"bob": 0.0} and not second[2].done
    assert third[2].done and third[2].success and third[2].team == 1.0 and third[2].info["answers"] == 2.0
    assert (await through(env, "a", "b", "no"))[-1][2] == StepResult(
        {"ann": 0.0},
        0.25,
        True,
        False,
        {name: 0.0 for name in ("refused_requests", "unmatched_messages", "malformed_calls", "too_many_calls")}
        | {"answers": 2.0},
    )
    await env.close()


@pytest.mark.parametrize("pure", [False, True])
async def test_every_team_reward_is_in_the_return_of_the_episode(pure: bool) -> None:
    async def paid(task: Task, client_for_agent: ClientForAgent) -> float:
        for agent, team in (("ann", 0.5), ("ann", 0.125), ("bob", 0.25)):
            await client_for_agent(agent).chat([{"role": "user", "content": "hello"}])
            client_for_agent(agent).reward(team=team)
        return 1.0

    env, steps = await start_env(world(paid, pure=pure), TASK), []
    while agents := env.next_agents():
        steps.append(await advance(env, {agents[0]: "hi"}))
    assert [each.ends_turn for each in steps] == [True, False, True]
    assert [each.team_return for each in steps] == [0.5, 0.0, 0.125 + 0.25 + 1.0]
    assert steps[1].result.team == (0.125 if pure else 0.0)  # a sampler of trees compares the messages themselves
    await env.close()


async def test_messages_that_come_back_changed_are_counted() -> None:
    async def shortened(task: Task, client_for_agent: ClientForAgent) -> float:
        said = await client_for_agent("ann").chat(ASKED)
        for content in (said["content"], said["content"].upper()):
            await client_for_agent("bob").chat([*ASKED, said | {"content": content}, *ASKED])
        return 1.0

    env = world(shortened)
    steps = await through(env, "a note", "b", "c")
    assert [step[2].info["unmatched_messages"] for step in steps] == [0, 0, 1]
    await env.close()


async def test_a_turn_is_the_number_of_the_agents_earlier_calls() -> None:
    env = await start_env(world(duet), TASK)
    turns = []
    for text in ("a", "b", "yes"):
        turns.append((env.next_agents()[0], env.turn))
        await env.step({env.next_agents()[0]: text})
    assert turns == [("ann", 0), ("bob", 0), ("ann", 1)] and env.turn == 2
    await env.close()


async def test_a_function_that_blocks_and_one_with_calls_at_once() -> None:
    def blocking(task: Task, client_for_agent: ClientForAgent) -> float:
        return float(_blocking(client_for_agent, "bob"))

    async def at_once(task: Task, client_for_agent: ClientForAgent) -> float:
        texts = await asyncio.gather(
            *(say(client_for_agent, agent, str(i)) for i, agent in enumerate(["ann"] * 2 + ["bob"]))
        )
        return float(sorted(texts) == ["from 0", "from 1", "from 2"])

    env = world(blocking)
    ((_, _, result),) = await through(env, "1.5")
    assert result.team == 1.5 and result.success
    await env.close()
    env = await start_env(world(at_once), TASK)
    while agents := env.next_agents():
        seen = env.observe(agents[0])[-1]["content"]
        result = await env.step({agents[0]: f"from {seen}"})
    assert result.success
    await env.close()


# ---- several ways from one state -----------------------------------------------------------------------------------


async def test_forks_of_a_pure_program_go_their_own_ways() -> None:
    env = await start_env(world(duet, pure=True), TASK)
    await env.step({"ann": "note"})
    one, other = env.fork(), env.fork()
    assert one.state_key() == other.state_key()
    await one.step({"bob": "left"})
    await other.step({"bob": "right"})
    assert [e.observe("ann")[-1]["content"] for e in (one, other)] == ["left", "right"]
    assert one.state_key() != other.state_key()
    again = env.fork()  # the live run is gone on: it is played again
    assert (await again.step({"bob": "third"})).done is False
    assert (await again.step({"ann": "yes"})).success and (await one.step({"ann": "no"})).team == 0.25
    assert [e.next_agents() for e in (env, other, again)] == [("bob",), ("ann",), ()]
    await env.close()


async def test_a_program_that_is_not_pure_is_refused() -> None:
    count = iter(range(100))

    async def counting(task: Task, client_for_agent: ClientForAgent) -> float:
        await say(client_for_agent, "ann", "first")
        await say(client_for_agent, "bob", f"run {next(count)}")
        return 0.0

    env = await start_env(world(counting, pure=True), TASK)
    fork = env.fork()
    await env.step({"ann": "a"})
    await fork.step({"ann": "b"})  # its past is the same
    further = env.fork()
    await env.step({"bob": "b"})
    with pytest.raises(ConfigError, match=r"^env\.pure=true, but the workflow went another way .* of agent 'ann'"):
        await further.step({"bob": "c"})
    await env.close()
    env = await start_env(world(counting), TASK)
    fork = env.fork()
    await env.step({"ann": "a"})
    with pytest.raises(ConfigError, match=r"^env\.pure=false"):
        await fork.step({"ann": "a"})
    await env.close()


async def test_what_nobody_goes_on_with_ends() -> None:
    ended = threading.Event()

    async def watched(task: Task, client_for_agent: ClientForAgent) -> float:
        try:
            return float(await say(client_for_agent, "ann", "?"))
        finally:
            ended.set()

    env = await start_env(world(watched), TASK)
    assert not ended.is_set()
    service = env._service
    del env
    assert await asyncio.to_thread(ended.wait, 30)
    assert not service._runs
    service.stop()


# ---- tools -----------------------------------------------------------------------------------------------------------


async def calculator(task: Task, client_for_agent: ClientForAgent) -> float:
    client, messages = client_for_agent("ann"), [{"role": "user", "content": "1 + 2?"}]
    while True:
        reply = await client.openai().chat.completions.create(model="ann", messages=messages, tools=[TOOL])
        message = reply.choices[0].message
        if not message.tool_calls:
            return float(message.content == "3")
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            total = sum(json.loads(call.function.arguments)["terms"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(total)})


async def test_calls_of_functions() -> None:
    env = await start_env(world(calculator, tools="hermes"), TASK)
    offer = env.tools("ann")
    assert offer is not None and offer.schemas == [
        {"type": "function", "function": {**TOOL["function"], "description": ""}}
    ]
    said = 'I add.\n<tool_call>\n{"arguments": {"terms": [1, 2]},  "name": "add"}\n</tool_call>'
    await env.step({"ann": said})
    roles = [(message["role"], message["content"]) for message in env.observe("ann")]
    assert roles == [("user", "1 + 2?"), ("assistant", said), ("tool", "3")]  # as it was said, to the blank
    assert (await env.step({"ann": "3"})).success
    env = await start_env(env, TASK)
    result = await env.step({"ann": "<tool_call>{not json</tool_call>"})
    assert result.done and result.team == 0 and result.info["malformed_calls"] == 1
    await env.close()
    with pytest.raises(ConfigError, match=r"env\.tools=hermes or llama"):
        await start_env(world(calculator), TASK)


# ---- what fails ------------------------------------------------------------------------------------------------------


async def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    env = world(duet)
    assert (await through(env, "a note", "an answer", "yes"))[-1][2].success
    await env.close()


async def test_arguments_that_nobody_can_read_are_text() -> None:
    """Written by the program, as by a model that never stops to open brackets."""

    async def deep(task: Task, client_for_agent: ClientForAgent) -> float:
        call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "[" * 50_000}}
        messages: Any = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "user", "content": "?"}]
        await client_for_agent("ann").openai().chat.completions.create(model="ann", messages=messages)
        return 1.0

    env = await start_env(world(deep), TASK)
    assert "[" * 50_000 in env.observe("ann")[0]["content"]
    assert (await env.step({"ann": "yes"})).success
    await env.close()


async def test_a_program_that_raises() -> None:
    async def raising(task: Task, client_for_agent: ClientForAgent) -> float:
        await say(client_for_agent, "bob", "?")
        return {}["nothing"]  # type: ignore[no-any-return]

    env = world(raising)
    with pytest.raises(
        WorkflowFailure, match=r"^the workflow raised KeyError: 'nothing' \(.*test_world\.py:\d+\); after"
    ) as e:
        await through(env, "a")
    assert isinstance(e.value.__cause__, KeyError)
    with pytest.raises(WorkflowFailure, match=r"ValueError: there is no agent 'eve'; .* before any reply"):
        await start_env(world(lambda task, client_for_agent: client_for_agent("eve")), TASK)
    with pytest.raises(WorkflowFailure, match="ended without a call"):
        await start_env(world(lambda task, client_for_agent: 1.0), TASK)
    with pytest.raises(WorkflowFailure, match="returns its reward, a number, or a WorkflowResult; got 'good'"):
        await through(world(lambda task, ask: _blocking(ask, "ann") and "good"), "a")
    await env.close()


def _blocking(client_for_agent: ClientForAgent, agent: str) -> str:
    client = client_for_agent(agent)
    with openai.OpenAI(base_url=client.base_url, api_key=client.api_key) as caller:
        reply = caller.chat.completions.create(model=agent, messages=[{"role": "user", "content": "?"}])
    return str(reply.choices[0].message.content)


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.slow
async def test_a_program_that_hangs_disturbs_nobody(blocks: bool) -> None:
    release = threading.Event()

    async def hanging(task: Task, client_for_agent: ClientForAgent) -> float:
        await say(client_for_agent, "ann", task.task_id)
        if task.task_id == "bad":
            release.wait() if blocks else await asyncio.Event().wait()
        return float(await say(client_for_agent, "bob", "and?") == "b")

    env = world(hanging, limit_s=1.0)
    bad, good = await start_env(env, Task("bad", "train", {})), await start_env(env, Task("good", "train", {}))
    lost = asyncio.create_task(bad.step({"ann": "a"}))
    await good.step({"ann": "a"})
    assert (await good.step({"bob": "b"})).success
    with pytest.raises(WorkflowFailure, match=r"within env\.limit_s=1; after reply 1, of agent 'ann'"):
        await lost
    release.set()
    await env.close()


async def test_what_came_in_time_to_a_busy_event_loop_counts() -> None:
    release = threading.Event()
    service, loop = Service(["ann"]), asyncio.get_running_loop()
    run = WorkflowRun(service, lambda task, client_for_agent: release.wait() and 0.0, TASK, ("ann",), ())
    call = PendingCall(ChatRequest("ann", (ChatMessage("user", "?"),)), loop, loop.create_future())
    waiting = asyncio.create_task(run.next(0.1))
    await asyncio.sleep(0)
    run._happen(call)
    end = loop.time() + 0.2
    while loop.time() < end:  # as while a checkpoint is written
        pass
    assert await waiting is call
    release.set()
    service.stop()


async def test_a_program_that_never_ends_ends_at_the_horizon() -> None:
    async def endless(task: Task, client_for_agent: ClientForAgent) -> float:
        while True:
            await say(client_for_agent, "ann", "go on")

    *_, (_, _, result) = await through(world(endless), "a", "b", "c")
    assert result.done and not result.success and result.team == 0 and result.info["too_many_calls"] == 1


async def test_refused_requests_are_counted_and_the_program_can_go_on() -> None:
    codes: list[Any] = []

    async def clumsy(task: Task, client_for_agent: ClientForAgent) -> float:
        for keys in ({"model": "eve"}, {"n": 2}, {"stop": ["x"]}, {"extra_body": {"guided": 1}}, {"messages": []}):
            client = client_for_agent("ann").openai()
            asked: dict[str, Any] = {"model": "ann", "messages": [{"role": "user", "content": "?"}]} | keys
            try:
                await client.chat.completions.create(**asked)
            except openai.APIStatusError as error:
                codes.append((error.status_code, error.body["code"], error.body["param"]))  # type: ignore[index]
        return float(await say(client_for_agent, "ann", "?") == "yes")

    env = world(clumsy)
    ((_, _, result),) = await through(env, "yes")
    assert codes == [(404, "model_not_found", "model")] + [
        (400, "invalid_value", name) for name in ("n", "stop", "guided", "messages")
    ]
    assert result.success and result.info["refused_requests"] == 5
    await env.close()


async def refuse(client_for_agent: ClientForAgent, agent: str, times: int) -> None:
    for _ in range(times):
        with contextlib.suppress(RefusedError):
            await client_for_agent(agent).chat(ASKED, n=2)


async def test_a_refused_request_counts_for_the_agent_that_asked() -> None:
    async def clumsy(task: Task, client_for_agent: ClientForAgent) -> float:
        await client_for_agent("ann").chat(ASKED)
        await refuse(client_for_agent, "bob", 3)  # after a message of ann's
        await client_for_agent("bob").chat(ASKED)
        await refuse(client_for_agent, "ann", 2)  # who says no more in this episode
        return 1.0

    env = world(clumsy)
    for carried in (0, 2):
        steps = await through(env, "a", "b")
        assert [step[2].info["refused_requests"] for step in steps] == [carried, 3]
    other = await start_env(env, Task("t", "test", {}))  # an evaluation has its own
    assert (await other.step({"ann": "a"})).info["refused_requests"] == 0
    await env.close()


@pytest.mark.parametrize("pure", [False, True])
async def test_refused_requests_of_a_lost_episode_are_in_the_next_numbers(pure: bool) -> None:
    async def clumsy(task: Task, client_for_agent: ClientForAgent) -> float:
        await refuse(client_for_agent, "ann", 1)
        await client_for_agent("ann").chat(ASKED)
        if task.task_id == "bad":
            await client_for_agent("bob").chat(ASKED, n=2)  # raises
        await client_for_agent("bob").chat(ASKED)
        return 1.0

    env = world(clumsy, pure=pure)
    bad = await start_env(env, Task("bad", "train", {}))
    with pytest.raises(WorkflowFailure, match="RefusedError: n: the gateway understands only 1"):
        await bad.step({"ann": "a"})
    steps = await through(env, "a", "b")
    assert [step[2].info["refused_requests"] for step in steps] == [2, 1]
    await env.close()


async def test_what_is_played_again_is_not_refused_again() -> None:
    async def clumsy(task: Task, client_for_agent: ClientForAgent) -> float:
        for agent in ("ann", "bob", "ann"):
            await refuse(client_for_agent, agent, 1)
            await client_for_agent(agent).chat(ASKED)
        return 1.0

    env = await start_env(world(clumsy, pure=True), TASK)
    forks = [env.fork() for _ in range(2)]
    for agent, counts in (("ann", [1, 0]), ("bob", [1, 1]), ("ann", [1, 1])):
        found = [(await fork.step({agent: "x"})).info["refused_requests"] for fork in forks]
        assert found == counts, agent
    await env.close()


async def test_calls_that_wait_as_their_run_ends_are_no_refusals(caplog: pytest.LogCaptureFixture) -> None:
    async def endless(task: Task, client_for_agent: ClientForAgent) -> float:
        while True:
            await say(client_for_agent, "ann", "go on")

    env = world(endless)
    await through(env, "a", "b", "c")
    await env.close()
    assert not any("were refused" in record.getMessage() for record in caplog.records)


async def test_a_client_that_does_not_wait() -> None:
    async def impatient(task: Task, client_for_agent: ClientForAgent) -> float:
        client = client_for_agent("ann").openai().with_options(max_retries=0)
        with contextlib.suppress(openai.APITimeoutError):
            await client.chat.completions.create(model="ann", messages=[{"role": "user", "content": "?"}], timeout=0.5)
        return float(await say(client_for_agent, "bob", "and?") == "yes")

    env = await start_env(world(impatient), TASK)
    assert env._lease is not None
    async with asyncio.timeout(30):
        while not env._lease.run._refusals:
            await asyncio.sleep(0.01)
    first = await env.step({"ann": "too late"})
    assert first.info["refused_requests"] == 1 and env.next_agents() == ("bob",)
    assert (await env.step({"bob": "yes"})).success
    await env.close()


@pytest.mark.parametrize("seen_first", [True, False])
async def test_a_request_that_is_sent_again_is_the_same_call(seen_first: bool) -> None:
    """Whether the end of the broken connection is seen before the new request comes, or after it."""
    release = threading.Event()
    service = Service(["ann"])
    run = WorkflowRun(service, lambda task, client_for_agent: release.wait() and 0.0, TASK, ("ann",), ())
    request = ChatRequest("ann", (ChatMessage("user", "?"),))
    broken = asyncio.create_task(run.answer(request, Draft()))
    call = await run.next(30)
    assert isinstance(call, PendingCall)
    call.write(0, ("hel", -0.5), "hel")
    await asyncio.sleep(0)
    if seen_first:
        broken.cancel()
        await asyncio.wait([broken])
    draft = Draft()
    again = asyncio.create_task(run.answer(request, draft))
    await asyncio.sleep(0)
    broken.cancel()
    await asyncio.wait([broken])
    assert draft.text == "hel"  # what was written before, too
    call.write(1, ("lo", -0.5), "hello")
    run.reply(call, ChatReply("hello"))
    assert await again == ChatReply("hello")
    assert draft.text == "hello" and draft.tokens == [("hel", -0.5), ("lo", -0.5)]
    release.set()
    assert await run.next(30) == WorkflowResult(0.0)  # and no second call
    service.stop()


async def test_a_request_that_is_sent_again_as_its_reply_is_on_its_way() -> None:
    """The new request wakes the player, and is then found to be that which was answered."""
    release = threading.Event()
    service = Service(["ann"])
    run = WorkflowRun(service, lambda task, client_for_agent: release.wait() and 0.0, TASK, ("ann",), ())
    request, loop = ChatRequest("ann", (ChatMessage("user", "?"),)), asyncio.get_running_loop()
    first, again = (PendingCall(request, loop, loop.create_future()) for _ in range(2))
    run._happen(first)
    assert await run.next(30) is first
    run.reply(first, ChatReply("hello"))
    waiting = asyncio.create_task(run.next(30))
    await asyncio.sleep(0)
    run._happen(again)
    run._orphan(first)
    assert await again.future == ChatReply("hello")
    release.set()
    assert await waiting == WorkflowResult(0.0)
    service.stop()


async def test_rewards_that_come_too_late() -> None:
    async def late(task: Task, client_for_agent: ClientForAgent) -> float:
        await say(client_for_agent, "ann", "?")
        await say(client_for_agent, "bob", "?")
        client_for_agent("ann").reward(local=1.0)
        return 0.0

    env = world(late)
    with pytest.raises(WorkflowFailure, match="a reward of agent 'ann' belongs between the reply"):
        await through(env, "a", "b")
    await env.close()


@pytest.mark.parametrize(
    ("rewarded", "result", "message"),
    [
        ({"local": float("nan")}, 0.0, r"local must be a finite number, got nan \(.*test_world\.py:\d+\)"),
        ({"team": float("inf")}, 0.0, "team must be a finite number"),
        ({"notes": "many"}, 0.0, "info: notes must be a finite number, got 'many'"),
        ({"cut_prompts": 1}, 0.0, "info: cut_prompts is a number of Troupe's"),
        ({}, float("nan"), "a workflow's reward must be a finite number, got nan"),
        ({}, WorkflowResult(0.0, info={"notes": float("inf")}), "info: notes must be a finite number"),
        ({}, WorkflowResult(0.0, info={"said": 1.0}), "info: said is a number of Troupe's"),
        ({}, WorkflowResult(0.0, info=[1.0]), "info must hold numbers by name"),  # type: ignore[arg-type]
    ],
)
async def test_rewards_that_are_no_numbers(rewarded: dict[str, Any], result: Any, message: str) -> None:
    async def wrong(task: Task, client_for_agent: ClientForAgent) -> Any:
        await say(client_for_agent, "ann", "?")
        client_for_agent("ann").reward(**rewarded)
        return result

    env = world(wrong)
    with pytest.raises(WorkflowFailure, match=f"the workflow raised TypeError: {message}"):
        await through(env, "a")
    await env.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workflow": 3}, r"^env\.workflow must be a function"),
        ({"tasks": "x.jsonl"}, r"^env\.tasks must be a function"),
        ({"agents": []}, r"^env\.agents must be"),
        ({"agents": ["a", "a"]}, r"^env\.agents must be"),
        ({"horizon": 0}, r"^env\.horizon must be"),
        ({"limit_s": 0}, r"^env\.limit_s must be"),
        ({"tools": "xml"}, r"env\.tools"),
    ],
)
def test_settings_that_are_wrong(settings: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        world(duet, **settings)


async def test_too_few_tasks() -> None:
    def few(split: Split, count: int, seed: int) -> Sequence[Task]:
        return tasks(split, 1, seed)

    assert len(world(duet).tasks("test", 3, 0)) == 3
    with pytest.raises(ValueError, match=r"^env\.tasks gave 1 different test tasks, not 3"):
        world(duet, tasks=few).tasks("test", 3, 0)


async def test_an_evaluation_plays_it() -> None:
    class Speaker:
        async def act(self, *arguments: Any) -> Any:
            return Answer("yes")

    env = world(duet)
    result: EpisodeResult = await play(env, TASK, {"ann": Speaker(), "bob": Speaker()}, 0)
    assert result.success and result.turns == 2 and result.env_steps == 3
    await env.close()


async def test_an_evaluation_knows_who_of_the_sub_agents_asked() -> None:
    class Speaker:
        async def act(self, *arguments: Any) -> Any:
            return Answer("yes")

    async def delegating(task: Task, client_for_agent: ClientForAgent) -> float:
        for session in ("", "lead", "lead/one"):
            await say(client_for_agent, "ann", "?", extra_headers={"x-troupe-session": session} if session else {})
        return 1.0

    env = world(delegating)
    result = await play(env, TASK, {"ann": Speaker()}, 0)
    assert [message.get("session") for message in result.messages] == [None, "lead", "lead/one"]
    assert summarise([result])["ann/reward"] == pytest.approx(1 / 3)
    assert [session_of(node) for node in episode_tree(asdict(result))["nodes"]] == ["", "lead", "lead/one"]
    await env.close()


async def test_the_server_asks_for_its_key_and_an_episode(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    async def stranger(task: Task, client_for_agent: ClientForAgent) -> float:
        client = client_for_agent("ann")
        root = client.base_url.partition("/episodes/")[0]
        for url, key in (
            (client.base_url, "sk-nothing"),
            (f"{root}/v1", client.api_key),
            (f"{root}/episodes/other/v1", client.api_key),
        ):
            async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as own:
                try:
                    await own.chat.completions.create(model="ann", messages=[{"role": "user", "content": "?"}])
                except openai.APIStatusError as error:
                    seen.append((error.status_code, error.body["code"]))  # type: ignore[index]
        async with openai.AsyncOpenAI(base_url=f"{root}/v1", api_key=client.api_key) as own:
            header = {"x-troupe-episode": client.base_url.split("/")[-2]}
            names = [model.id async for model in own.models.list(extra_headers=header)]
            text = ""
            stream = await own.chat.completions.create(
                model="ann", messages=[{"role": "user", "content": "?"}], stream=True, extra_headers=header
            )
            async for chunk in stream:
                text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        return float(names == ["ann", "bob"] and text == "yes")

    env = world(stranger)
    ((_, _, result),) = await through(env, "yes")
    assert seen == [(401, "invalid_api_key"), (404, "no_episode"), (410, "unknown_episode")]
    assert result.success and result.info["refused_requests"] == 1  # of the wrong key, to the run's own address
    await env.close()
    (line,) = (record.getMessage() for record in caplog.records if "were refused" in record.getMessage())
    assert line.endswith(
        "refused: 1 of no agent (invalid_api_key), 1 of no episode (no_episode), 1 of no episode (unknown_episode)"
    )
