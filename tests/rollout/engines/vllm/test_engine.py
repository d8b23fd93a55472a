"""The vLLM engine on a CPU against plain ``transformers``: what it samples, and that its weights are the learner's.

One engine serves all tests, since it takes long to start; each test that changes its weights loads others afterwards.
"""

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.experience import Completion, Request, Sampling
from troupe.rollout.engines.base import EngineClosedError
from troupe.rollout.engines.vllm import transfer
from troupe.rollout.engines.vllm.digest import WeightsMismatchError, compare
from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.rollout.engines.vllm.transfer import WeightSource
from troupe.rollout.engines.vllm.versions import is_0_22

from ....processes import until
from .conftest import SHARES_ENGINES, Build, Logprobs

pytestmark = SHARES_ENGINES
Spoil = Callable[[VllmEngine], Awaitable[None]]
POLICY = "plan"
PROMPT = tuple(range(10, 50))
EXACT = {"atol": 1e-4, "rtol": 0.0}  # float32 against float32


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(build: Build, digits: PreTrainedTokenizerFast) -> AsyncIterator[VllmEngine]:
    running = VllmEngine({POLICY: build()}, digits, kv_cache_gib=0.05, max_batch_rows=64, restarts=0, lockstep=False)
    yield running
    await running.close()
    assert not multiprocessing.active_children()


@pytest_asyncio.fixture(loop_scope="module")
async def base(engine: VllmEngine, build: Build) -> Qwen3ForCausalLM:
    """The weights that the engine has at a test's start."""
    model = build()
    await engine.load(POLICY, model.state_dict(), 0)
    return model


def request(n: int = 1, seed: int = 1, prompt: tuple[int, ...] = PROMPT, key: int = 0, **sampling: Any) -> Request:
    return Request(POLICY, prompt, n, Sampling(**{"max_tokens": 12} | sampling), seed, (key,))


def agree(model: Qwen3ForCausalLM, plain: Logprobs, completions: list[Completion], temperature: float = 1.0) -> None:
    for completion in completions:
        expected = plain(model, PROMPT, completion.token_ids, temperature)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, **EXACT)


async def test_logprobs_are_the_models_at_the_start_and_after_three_updates(
    engine: VllmEngine, base: Qwen3ForCausalLM, grown: Build, plain_logprobs: Logprobs
) -> None:
    agree(base, plain_logprobs, await engine.generate(request(4)))
    for version in (1, 2, 3):
        await agree_after_an_update(engine, grown(base, version), version, plain_logprobs)


async def test_a_compiled_model_has_the_new_weights_too(
    build: Build, grown: Build, digits: PreTrainedTokenizerFast, plain_logprobs: Logprobs
) -> None:
    base = build()
    engine = VllmEngine({POLICY: build()}, digits, kv_cache_gib=0.05, eager=False, restarts=0, lockstep=False)
    agree(base, plain_logprobs, await engine.generate(request(4)))
    for version in (1, 2):
        await agree_after_an_update(engine, grown(base, version), version, plain_logprobs)
    await engine.close()


async def agree_after_an_update(engine: VllmEngine, learner: Qwen3ForCausalLM, version: int, plain: Logprobs) -> None:
    measured = await engine.load(POLICY, learner.state_dict(), version)
    assert 0 <= measured["probe_nats"] < 1e-4
    completions = await engine.generate(request(4, seed=version))
    assert {completion.version for completion in completions} == {version}
    agree(learner, plain, completions)


async def test_one_prompt_has_n_different_completions_and_is_read_once(
    engine: VllmEngine, base: Qwen3ForCausalLM
) -> None:
    completions = await engine.generate(request(8, max_tokens=20))
    assert len({completion.token_ids for completion in completions}) == 8
    [again] = await engine.server.probe(POLICY, [PROMPT])
    assert again.cached == 32  # the prompt's whole blocks


@pytest.mark.parametrize("stop", [(), ("never",)])
async def test_candidates_draw_with_the_seeds_that_follow(
    engine: VllmEngine, stop: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.replies, "seeded", True)  # as in lockstep
    together = await engine.generate(request(3, seed=7, stop=stop))
    alone = [await engine.generate(request(1, seed=7 + i, stop=stop)) for i in range(3)]
    assert [c.token_ids for c in together] == [c.token_ids for [c] in alone]


async def test_a_seed_fixes_the_draws_whatever_shares_the_batch(
    engine: VllmEngine, base: Qwen3ForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.replies, "seeded", True)
    alone = await engine.generate(request(3, seed=7))
    company = [request(2, seed=seed, prompt=PROMPT[: 5 + seed]) for seed in range(20, 30)]
    shared, *_ = await asyncio.gather(engine.generate(request(3, seed=7)), *map(engine.generate, company))
    other = await engine.generate(request(3, seed=8))
    assert [c.token_ids for c in alone] == [c.token_ids for c in shared] != [c.token_ids for c in other]


async def test_logprobs_are_those_of_the_distribution_sampled_from(
    engine: VllmEngine, base: Qwen3ForCausalLM, plain_logprobs: Logprobs
) -> None:
    agree(base, plain_logprobs, await engine.generate(request(4, temperature=0.5)), temperature=0.5)
    [certain] = await engine.generate(request(top_k=1))
    assert certain.logprobs == (0.0,) * 12
    [greedy] = await engine.generate(request(temperature=0.0))
    assert greedy.token_ids == certain.token_ids and greedy.logprobs == certain.logprobs


async def test_a_stop_string_ends_a_completion_and_is_no_text(
    engine: VllmEngine, digits: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.replies, "seeded", True)
    [whole] = await engine.generate(request())
    words = whole.text.split()
    [cut] = await engine.generate(request(stop=(f"{words[4]} ", "never")))
    first = words.index(words[4])
    assert cut.finish_reason == "stop" and cut.text.split() == words[:first]
    assert cut.token_ids == whole.token_ids[: len(cut.token_ids)] and len(cut.token_ids) <= first + 2


async def test_the_end_of_sequence_ends_a_completion(
    engine: VllmEngine, base: Qwen3ForCausalLM, digits: PreTrainedTokenizerFast
) -> None:
    with torch.no_grad():  # an output that always says <eos>, whatever the input embedding
        base.model.norm.weight.fill_(0.0)
        await engine.load(POLICY, base.state_dict(), 1)
    completions = await engine.generate(request(64, max_tokens=200, seed=3))  # uniform over the vocabulary
    ended = [completion for completion in completions if completion.finish_reason == "stop"]
    assert ended
    for completion in ended:
        assert completion.token_ids.count(digits.eos_token_id) == 1
        assert completion.token_ids[-1] == digits.eos_token_id
        assert completion.text == digits.decode(list(completion.token_ids[:-1]), skip_special_tokens=True)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (request(prompt=()), "the prompt is empty"),
        (request(0), "n must be at least 1, got 0"),
        (request(prompt=PROMPT * 6, max_tokens=17), "240 tokens and max_tokens = 17 exceed the context of 256"),
        (request(prompt=(4, 64)), "outside of the vocabulary of 64"),
        (request(temperature=0.001), "vLLM raises a temperature below 0.01"),
        (Request("tool", PROMPT, 1, Sampling(), 0), "no policy 'tool' in this engine; it has plan"),
    ],
    ids=["empty", "n", "context", "vocabulary", "temperature", "policy"],
)
async def test_what_cannot_be_served_is_refused(engine: VllmEngine, wrong: Request, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        await engine.generate(wrong)


async def test_a_prompt_may_fill_the_context_together_with_its_answer(
    engine: VllmEngine, base: Qwen3ForCausalLM
) -> None:
    [completion] = await engine.generate(request(prompt=PROMPT * 6, max_tokens=16))
    assert len(completion.token_ids) <= 16


async def test_a_caller_that_goes_away_and_a_deadline_leave_the_engine_free(
    engine: VllmEngine, base: Qwen3ForCausalLM
) -> None:
    task = asyncio.create_task(engine.generate(request(8, max_tokens=200)))
    await until(lambda: engine._answering)
    task.cancel()
    late = Request(POLICY, PROMPT, 8, Sampling(max_tokens=200), 0, (9,), deadline=0.0)
    with pytest.raises(TimeoutError, match=r"policy 'plan', request \(9,\)"):
        await engine.generate(late)
    await engine.load(POLICY, base.state_dict(), 1)  # waits for whatever is under way
    assert not engine._answering
    assert len(await engine.generate(request())) == 1


async def test_asleep_it_serves_nothing(engine: VllmEngine, base: Qwen3ForCausalLM) -> None:
    await engine.sleep()
    with pytest.raises(RuntimeError, match="asleep"):
        await engine.generate(request())
    await engine.wake()
    assert await engine.generate(request())


@pytest.fixture
def calls(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of the process about memory, weights and probes, in order."""
    calls: list[str] = []
    server, llm = engine.server, engine.server._llm

    def note(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        async def call(*arguments: Any) -> Any:
            calls.append(f"{name} {arguments[0] if name in ('sleep', 'wake_up') else ''}".strip())
            return await method(*arguments)

        monkeypatch.setattr(owner, name, call)

    for name in ("sleep", "wake_up"):
        note(llm, name)
    for name in ("send", "digests", "forget", "probe"):
        note(server, name)
    return calls


async def test_on_a_cpu_there_is_nothing_to_offload(
    engine: VllmEngine, base: Qwen3ForCausalLM, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.server.level == 0
    await engine.sleep()
    assert await engine.wake() == {} and calls == []
    # What vLLM's CPU build does when it is told to sleep: it pauses, keeps all that it has, and goes on.
    llm = engine.server._llm
    before = await engine.server.digests(engine.expected.model)
    await llm.sleep(2)
    assert await llm.is_sleeping() and await engine.server.digests(engine.expected.model) == before
    await llm.wake_up(["weights"])
    assert await llm.is_sleeping()
    await llm.wake_up(["kv_cache"])
    assert not await llm.is_sleeping() and await engine.generate(request())


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_sleep_that_fails_leaves_the_engine_awake_and_ends_the_process(
    engine: VllmEngine, base: Qwen3ForCausalLM, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """The end itself is only recorded: this engine is not to start another process."""
    ended: list[str] = []

    async def failing(level: int) -> None:
        if cancelled:
            await asyncio.Event().wait()
        raise RuntimeError(f"no sleep at level {level}")

    with monkeypatch.context() as patch:
        patch.setattr(engine.server, "level", 1)
        patch.setattr(engine.server, "kill", lambda: ended.append("killed"))
        patch.setattr(engine.server._llm, "sleep", failing)
        task = asyncio.create_task(engine.sleep())
        if cancelled:
            await until(lambda: engine._gate.locked())
            with pytest.raises(RuntimeError, match="asleep"):
                await engine.generate(request())
            task.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else RuntimeError):
            await task
    assert ended == ["killed"] and not engine.server.offloaded
    assert await engine.generate(request())


@pytest.mark.parametrize("level", [1, 2])
async def test_asleep_new_weights_come_before_the_cache_and_all_is_proven(
    engine: VllmEngine,
    base: Qwen3ForCausalLM,
    grown: Build,
    plain_logprobs: Logprobs,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    level: int,
) -> None:
    """The order on a GPU, which vLLM's CPU build goes through without freeing anything."""
    monkeypatch.setattr(engine.server, "level", level)
    learner = grown(base, 1)
    await engine.sleep()
    with pytest.raises(RuntimeError, match="asleep"):
        await engine.generate(request())
    assert "probe_nats" not in await engine.load(POLICY, learner.state_dict(), 1)
    measured = await engine.wake()
    sent = ["wake_up ['weights']", "send", "digests"]
    assert calls == [f"sleep {level}", *sent, "wake_up ['kv_cache']", "forget", "probe", "probe"]
    assert 0 <= measured["probe_nats"] < 1e-4
    agree(learner, plain_logprobs, await engine.generate(request(4)))


async def test_weights_that_are_lost_in_sleep_are_sent_anew(
    engine: VllmEngine, base: Qwen3ForCausalLM, plain_logprobs: Logprobs, spoil: Spoil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a policy does not learn: nothing is loaded, and level 2 has left nothing."""
    monkeypatch.setattr(engine.server, "level", 2)
    await engine.sleep()
    await spoil(engine)
    [digests] = await engine.server.digests(engine.expected.model)
    with pytest.raises(WeightsMismatchError, match=r"model\.embed_tokens\.weight"):
        compare(POLICY, engine.expected.model.digests, digests)
    assert (await engine.wake())["probe_nats"] < 1e-4
    agree(base, plain_logprobs, await engine.generate(request(2)))


async def test_weights_that_are_not_sent_after_sleep_stop_the_run(
    engine: VllmEngine, base: Qwen3ForCausalLM, spoil: Spoil, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(weights: Any) -> None:
        pass

    monkeypatch.setattr(engine.server, "level", 2)
    await engine.sleep()
    await spoil(engine)
    with monkeypatch.context() as patch:
        patch.setattr(engine.server, "send", nothing)
        with pytest.raises(WeightsMismatchError, match=r"policy 'plan'.*model\.embed_tokens\.weight"):
            await engine.wake()
    await engine.verifier.sleep(engine.server)  # which has been told that they are there
    await engine.wake()


# ---- mutations: what must stop a run ------------------------------------------------------------------------------


async def test_a_tensor_that_was_not_sent_stops_the_run(
    engine: VllmEngine, base: Qwen3ForCausalLM, grown: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, skipped = grown(base, 1), "model.layers.1.post_attention_layernorm.weight"
    parts = transfer.parts

    def all_but_one(source: WeightSource, folder: Path) -> Iterator[Path]:
        rest = [(name, tensor) for name, tensor in source.weights() if name != skipped]
        return parts(replace(source, weights=lambda: rest), folder)

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "parts", all_but_one)
        with pytest.raises(WeightsMismatchError, match=rf"policy 'plan'.*: {skipped} differ$"):
            await engine.load(POLICY, learner.state_dict(), 1)
    with pytest.raises(WeightsMismatchError, match=skipped):
        await engine.generate(request())


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.k_proj.weight", "model.embed_tokens.weight"])
async def test_a_tensor_that_arrives_otherwise_stops_the_run(
    engine: VllmEngine, base: Qwen3ForCausalLM, grown: Build, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    learner, parts = grown(base, 1), transfer.parts

    def altered(source: WeightSource, folder: Path) -> Iterator[Path]:
        weights = dict(source.weights())
        weights[name] = weights[name].clone()
        weights[name][-1, -1] *= 1.001
        return parts(replace(source, weights=weights.items), folder)

    monkeypatch.setattr(transfer, "parts", altered)
    with pytest.raises(WeightsMismatchError, match=rf"policy 'plan'.*{name}.*differ$"):
        await engine.load(POLICY, learner.state_dict(), 1)


async def test_a_tied_head_that_keeps_its_packed_copy_stops_the_run(
    engine: VllmEngine, base: Qwen3ForCausalLM, grown: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_0_22():
        pytest.skip("in vLLM 0.22.1 a tied head is the embedding itself")
    send = engine.server.transfer.send

    async def under_one_name(source: WeightSource) -> None:
        await send(replace(source, tied={}))

    monkeypatch.setattr(engine.server.transfer, "send", under_one_name)
    with pytest.raises(WeightsMismatchError, match=r"policy 'plan'.*: lm_head.weight differ$"):
        await engine.load(POLICY, grown(base, 1).state_dict(), 1)


async def test_a_cache_of_prefixes_that_is_kept_stops_the_run(
    engine: VllmEngine, base: Qwen3ForCausalLM, grown: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget() -> None:
        pass

    monkeypatch.setattr(engine.server, "forget", forget)
    with pytest.raises(WeightsMismatchError, match=r"policy 'plan', version 1: .*of prefixes still holds \d+ tok"):
        await engine.load(POLICY, grown(base, 1).state_dict(), 1)


async def test_a_probe_that_is_heard_otherwise_stops_the_run(
    engine: VllmEngine, base: Qwen3ForCausalLM, grown: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that agree are not all: were the digests blind, the log-probs would tell."""
    monkeypatch.setattr("troupe.rollout.engines.vllm.verifier.compare", lambda *_: None)
    monkeypatch.setattr(transfer, "parts", lambda *_: iter(()))
    with pytest.raises(WeightsMismatchError, match=r"policy 'plan', version 1: .* on which float32 moves"):
        await engine.load(POLICY, grown(base, 1, 1e-5).state_dict(), 1)


async def test_weights_that_do_not_fit_change_nothing(
    engine: VllmEngine, base: Qwen3ForCausalLM, plain_logprobs: Logprobs
) -> None:
    wrong = dict(base.state_dict())
    del wrong["model.norm.weight"]
    with pytest.raises(ValueError, match=r"policy 'plan'.*missing: model\.norm\.weight"):
        await engine.load(POLICY, wrong, 1)
    agree(base, plain_logprobs, await engine.generate(request(2)))
    assert engine.expected.policies[POLICY].version == 0


# ---- the end -------------------------------------------------------------------------------------------------------


async def test_z_a_process_that_dies_is_told_and_closing_leaves_none(
    engine: VllmEngine, base: Qwen3ForCausalLM
) -> None:
    """Last, since it ends the engine."""
    [process] = multiprocessing.active_children()
    files = list(engine.server.folder.iterdir())
    assert any(file.is_socket() for file in files), "the sockets between the two processes"
    assert any(file.name.startswith("vllm_dist_") for file in files) != is_0_22(), "its rendezvous, on TCP in 0.22.1"
    task = asyncio.create_task(engine.generate(request(8, max_tokens=200)))
    await until(lambda: engine._answering)
    os.kill(process.pid, 9)
    with pytest.raises(RuntimeError, match=r"policy 'plan': vLLM's process has ended.*; engine.restarts=0 allows no"):
        await task
    folder = engine.server.folder
    await engine.close()
    await engine.close()
    assert not folder.exists()
    with pytest.raises(EngineClosedError):
        await engine.generate(request())
