"""Two vLLM engines in lockstep on a CPU: bits depend on the requests alone, and waiting for a round is no silence."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from transformers import PreTrainedTokenizerFast

from troupe.experience import Completion, Request, Sampling
from troupe.rollout.engines.lockstep import hold, rounds
from troupe.rollout.engines.vllm import transfer
from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.rollout.engines.vllm.transfer import WeightSource

from ....processes import alive, until
from .conftest import SHARES_ENGINES, Build

pytestmark = SHARES_ENGINES
Team = dict[str, VllmEngine]
POLICIES = ("tool", "plan")
PROMPT = tuple(range(10, 50))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def team(build: Build, digits: PreTrainedTokenizerFast) -> AsyncIterator[Team]:
    engines = {
        name: VllmEngine({name: build(seed)}, digits, kv_cache_gib=0.05, max_batch_rows=16, restarts=2)
        for seed, name in enumerate(POLICIES)
    }
    yield engines
    for engine in engines.values():
        await engine.close()


@pytest_asyncio.fixture(loop_scope="module")
async def afresh(team: Team, build: Build) -> Callable[[], object]:
    """``await afresh()``: the weights of the start, and no prefix in the cache."""

    async def load() -> None:
        for seed, (name, engine) in enumerate(team.items()):
            await engine.load(name, build(seed).state_dict(), 0)

    return load


def request(policy: str, key: tuple[int | str, ...], prompt: Sequence[int] = PROMPT, n: int = 3) -> Request:
    return Request(policy, tuple(prompt), n, Sampling(max_tokens=12), sum(map(ord, f"{key}")), key)


@pytest.mark.parametrize("shuffle", [1, 2])
async def test_the_order_of_arrival_does_not_matter(team: Team, afresh: Callable[[], object], shuffle: int) -> None:
    # The first block of 32 tokens is the same: whoever comes first reads it, the others find it in the cache.
    requests = [request("tool", (i,), PROMPT[: 33 + i % 8]) for i in range(12)]

    async def play(order: list[Request]) -> dict[object, list[Completion]]:
        await afresh()
        answers = await asyncio.gather(*map(team["tool"].generate, order))
        return dict(zip([each.key for each in order], answers, strict=True))

    assert await play(requests) == await play(Random(shuffle).sample(requests, 12))


async def test_a_round_is_submitted_at_once_in_the_order_of_keys(
    team: Team, afresh: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    await afresh()
    engine, calls = team["tool"], []
    llm, core = engine.server._llm, engine.server._llm.engine_core

    def note(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        async def call(*arguments: Any, **keywords: Any) -> Any:
            calls.append(arguments[1]["prompt_token_ids"][-1] if name == "add_request" else name)
            return await method(*arguments, **keywords)

        monkeypatch.setattr(owner, name, call)

    for owner, name in ((core, "pause_scheduler_async"), (llm, "add_request"), (llm, "resume_generation")):
        note(owner, name)
    order = [(2, "a"), (10, "a"), (10, "b"), ("x",)]
    requests = [request("tool", key, (*PROMPT, token)) for token, key in enumerate(order, 4)]
    await asyncio.gather(*map(engine.generate, Random(0).sample(requests, 4)))
    assert calls == ["pause_scheduler_async", 4, 5, 6, 7, "resume_generation"]


async def test_two_pools_and_worlds_of_any_speed_repeat_themselves_bit_for_bit(
    team: Team, afresh: Callable[[], object]
) -> None:
    """Episodes of three turns, between which something outside of the event loop is awaited."""

    async def episode(board: int, speed: Random) -> list[Completion]:
        completions: list[Completion] = []
        prompt: tuple[int, ...] = PROMPT[: 28 + board]
        for turn in range(3):
            policy = POLICIES[(board + turn) % 2]
            completions += await team[policy].generate(request(policy, (board, turn, policy), prompt))
            prompt += completions[-1].token_ids
            with hold():
                await asyncio.sleep(0.03 * speed.random())
        return completions

    async def play(seed: int) -> list[list[Completion]]:
        await afresh()
        speed = Random(seed)
        boards = speed.sample(range(12), 12)
        episodes = await asyncio.gather(*(episode(board, speed) for board in boards))
        return [completions for _, completions in sorted(zip(boards, episodes, strict=True))]

    first = await play(1)
    assert len({completion.token_ids for completions in first for completion in completions}) > 50
    assert first == await play(2) == await play(3)


async def test_a_request_inside_hold_is_refused(team: Team) -> None:
    with hold(), pytest.raises(RuntimeError, match="inside hold"):
        await team["tool"].generate(request("tool", (0,)))


async def test_a_caller_that_goes_away_before_its_round_takes_the_request_along(
    team: Team, afresh: Callable[[], object]
) -> None:
    async def play(gone: int) -> list[Completion]:
        await afresh()
        with rounds().hold():
            tasks = [asyncio.create_task(team["tool"].generate(request("tool", (i,)))) for i in range(-gone, 1)]
            await until(lambda: len(team["tool"]._arrived) == gone + 1)
            for task in tasks[:-1]:
                task.cancel()
        return await tasks[-1]

    assert await play(0) == await play(5)
    assert not team["tool"]._answering and not team["tool"]._outstanding


async def test_z_waiting_for_a_round_is_no_silence_and_survives_the_process(
    team: Team, afresh: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last, since it uses up an engine's restarts."""
    monkeypatch.setattr("troupe.rollout.engines.vllm.server.POLL_S", 0.1)
    await afresh()
    engine, query = team["plan"], request("plan", (7,), n=8)
    expected = await engine.generate(query)
    with monkeypatch.context() as patch:
        patch.setattr(engine.server, "settings", replace(engine.server.settings, stall_s=0.3))
        with rounds().hold():
            waiting = asyncio.create_task(engine.generate(query))
            await asyncio.sleep(1.0)
        assert await waiting == expected and engine.supervisor.restarts == 0
    with rounds().hold():
        waiting = asyncio.create_task(engine.generate(query))
        await until(lambda: engine._arrived)
        pid = engine.server.process.pid
        kill(engine)
        await until(lambda: not alive(pid))
    assert [each.token_ids for each in await waiting] == [each.token_ids for each in expected]
    assert engine.supervisor.restarts == 1


async def test_z_a_caller_that_goes_away_while_a_process_is_replaced_ends_nothing_for_the_others(
    team: Team, afresh: Callable[[], object]
) -> None:
    """Of the other engine, for the same reason."""
    await afresh()
    engine, long = team["tool"], Sampling(max_tokens=200)
    query, hurried = (replace(request("tool", (i,), n=8), sampling=long) for i in (1, 0))
    expected = await engine.generate(query)
    hurried = replace(hurried, deadline=time.monotonic() + 1.0)  # another process takes longer to start
    first, other = (asyncio.create_task(engine.generate(each)) for each in (hurried, query))
    await until(lambda: len(engine._answering) == 2)
    kill(engine)
    with pytest.raises(TimeoutError):
        await first
    assert engine.supervisor.restarts == 1 and not other.done()
    assert [each.token_ids for each in await other] == [each.token_ids for each in expected]
    assert engine.supervisor.restarts == 1


async def test_z_a_process_that_fails_in_an_update_is_replaced_with_the_current_weights(
    team: Team, afresh: Callable[[], object], build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that has no memory left for them."""
    await afresh()
    engine, query = team["tool"], request("tool", (1,))
    expected, before, parts = await engine.generate(query), engine.supervisor.restarts, transfer.parts

    def torn(source: WeightSource, folder: Path) -> Iterator[Path]:
        monkeypatch.undo()
        for path in parts(source, folder):
            path.write_bytes(path.read_bytes()[:100])
            yield path

    monkeypatch.setattr(transfer, "parts", torn)
    assert (await engine.load("tool", build(0).state_dict(), 1))["probe_nats"] < 1e-4
    assert engine.supervisor.restarts == before + 1
    assert [each.token_ids for each in await engine.generate(query)] == [each.token_ids for each in expected]


def kill(engine: VllmEngine) -> None:
    os.kill(engine.server.process.pid, signal.SIGKILL)
