"""Two vLLM engines in the place of one, on a CPU, as a run builds them: each is proven, and one that dies replaced."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.experience import Completion, Request, Sampling
from troupe.rollout.engines.replicas import Replicas
from troupe.rollout.engines.vllm.digest import WeightsMismatchError
from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.setup.team import build_engine

from .conftest import SHARES_ENGINES, Build, Logprobs

pytestmark = SHARES_ENGINES
POLICY = "plan"
PROMPT = tuple(range(10, 50))
NODE = {
    **{"_target_": "troupe.rollout.engines.vllm.engine.VllmEngine", "_partial_": True, "data_parallel": 2},
    **{"kv_cache_gib": 0.05, "max_batch_rows": 64, "lockstep": False, "restarts": 1},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replicas(build: Build, digits: PreTrainedTokenizerFast) -> AsyncIterator[Replicas]:
    built = build_engine(NODE, {POLICY: build()}, digits)
    assert isinstance(built, Replicas)
    yield built
    await built.close()


def engines(replicas: Replicas) -> list[VllmEngine]:
    return replicas.engines  # type: ignore[return-value]


def request(task: str, n: int = 4, **sampling: Any) -> Request:
    return Request(POLICY, PROMPT, n, Sampling(**{"max_tokens": 12} | sampling), sum(map(ord, task)), (task, 0, "plan"))


def agree(model: Qwen3ForCausalLM, plain: Logprobs, completions: list[Completion]) -> None:
    for completion in completions:
        expected = plain(model, PROMPT, completion.token_ids)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0.0)


async def test_each_has_the_learners_weights_and_a_request_draws_the_same_from_any(
    replicas: Replicas, build: Build, grown: Build, plain_logprobs: Logprobs
) -> None:
    for engine in engines(replicas):
        engine.replies.seeded = True  # as in lockstep
    model = build()
    for version in range(2):
        if version:
            model = grown(model, version)
            assert 0 <= (await replicas.load(POLICY, model.state_dict(), version))["probe_nats"] < 1e-4
        tasks = [f"board {index}" for index in range(4)]
        answers = await asyncio.gather(*(replicas.generate(request(task)) for task in tasks))
        assert sorted(replicas._places.values()) == [0, 0, 1, 1] and replicas._under_way == [0, 0]
        for task, completions in zip(tasks, answers, strict=True):
            assert {completion.version for completion in completions} == {version}
            agree(model, plain_logprobs, completions)
            for engine in engines(replicas):
                again = await engine.generate(request(task))
                assert [each.token_ids for each in again] == [each.token_ids for each in completions]
    assert replicas.drain() == {"faults/engine": 0}


async def test_z_one_that_dies_before_new_weights_are_there_starts_with_those_that_it_had(
    replicas: Replicas, build: Build, grown: Build, plain_logprobs: Logprobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last, since it uses up the restarts of one."""
    model, learner = build(), grown(build(), 7)
    await replicas.load(POLICY, model.state_dict(), 6)
    first, second = engines(replicas)
    process = second.server.process
    long = asyncio.create_task(second.generate(request("board", 8, max_tokens=200)))
    while not second._answering:
        await asyncio.sleep(0.01)
    os.kill(process.pid, signal.SIGSTOP)  # so that its answers cannot be there before the other has new weights
    loading = asyncio.create_task(replicas.load(POLICY, learner.state_dict(), 7))
    while first.expected.policies[POLICY].version < 7:
        await asyncio.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    completions = await long
    agree(model, plain_logprobs, completions)
    assert {completion.version for completion in completions} == {6}
    assert (await loading)["probe_nats"] < 1e-4 and replicas.drain() == {"faults/engine": 1}
    for engine in (first, second):
        agree(learner, plain_logprobs, await engine.generate(request("board")))


async def test_zz_weights_that_one_does_not_take_stop_the_run(
    replicas: Replicas, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(weights: Any) -> None:
        pass

    monkeypatch.setattr(engines(replicas)[1].server, "send", nothing)
    with pytest.raises(WeightsMismatchError, match=r"policy 'plan'.*differ$"):
        await replicas.load(POLICY, build(3).state_dict(), 8)
