"""The torch engine: coroutines, lockstep, failures, loading, sleeping and closing."""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections.abc import Sequence

import pytest
import torch

from troupe.experience import Request, Sampling
from troupe.rollout.engines.base import Engine, EngineClosedError
from troupe.rollout.engines.lockstep import _PASSES, hold
from troupe.rollout.engines.torch.decoding import DecodingJob
from troupe.rollout.engines.torch.engine import TorchEngine

from .conftest import VOCABULARY, all_of, build, decoder, llama, request, worst


async def test_max_batch_rows_is_kept(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer, max_batch_rows=6)
    sizes, step = [], decoder(engine).step
    decoder(engine).step = lambda: (sizes.append(len(decoder(engine).rows)), step())
    await all_of(engine, [request(4 + i, seed=i, n=2) for i in range(10)])
    assert max(sizes) == 6
    with pytest.raises(ValueError, match=r"n must be between 1 and engine.max_batch_rows = 6, got 7"):
        await engine.generate(request(4, n=7))


@pytest.mark.parametrize("lockstep", [True, False])
async def test_who_comes_after_others_has_waited_for_them(lockstep, tokenizer):
    engine, begun = TorchEngine({"p": build()}, tokenizer, max_batch_rows=2, lockstep=lockstep), time.perf_counter()
    nodes = await all_of(engine, [request(4, seed=i, n=2) for i in range(3)])
    waited = [node[0].waited for node in nodes]
    assert 0 <= waited[0] < waited[1] < waited[2] < time.perf_counter() - begun
    assert all(each.waited == node[0].waited for node in nodes for each in node)


TOKEN = 2 * 2 * 2 * 8 * 4  # bytes of a token: layers, keys and values, heads, width, float32


def test_how_many_fit(tokenizer):
    """By hand: three prompts of 4, 5 and 9 tokens with 2 completions of 6 each."""
    empty = decoder(TorchEngine({"p": build()}, tokenizer))
    jobs = [DecodingJob(request(length, n=2, max_tokens=6), lambda _: None, lambda: False) for length in (4, 5, 9)]
    tokens = [1 * 4 + 2 * 6, 2 * 5 + 4 * 6, 3 * 9 + 6 * 6]
    for count, most in enumerate(tokens, start=1):
        assert empty.fitting(jobs, 100, most * TOKEN) == count
        assert empty.fitting(jobs, 100, (most - 1) * TOKEN) == max(count - 1, 1), "one always joins"
    assert empty.fitting(jobs, 4, 1 << 40) == 2 and empty.fitting([], 4, 1) == 0
    empty.admit(jobs[:1])
    empty.step()
    assert empty.fitting(jobs[1:], 100, tokens[1] * TOKEN) == 1
    assert empty.fitting(jobs[1:], 100, (tokens[1] - 1) * TOKEN) == 0, "none has to join others"


@pytest.mark.parametrize("lockstep", [True, False])
async def test_a_bounded_cache_is_never_exceeded_and_changes_no_draw(lockstep, tokenizer):
    model, most = build(), 400
    short = [request(2 + i % 3, seed=i, n=8 if i % 4 == 0 else 1, max_tokens=4 + i % 9) for i in range(24)]
    requests = [request(30, seed=50, max_tokens=3), *short, *(request(34 + i, seed=60 + i, n=2) for i in range(4))]
    engines = [
        TorchEngine({"p": copy.deepcopy(model)}, tokenizer, 64, lockstep, max_cache_gib=gib)
        for gib in (None, most * TOKEN / 2**30)
    ]
    sizes, widths, admit = [], [], decoder(engines[1]).admit

    def watched(jobs: Sequence[DecodingJob]) -> None:
        admit(jobs)
        cache = decoder(engines[1])._cache
        stores = [tensor for store in (cache._prompt, cache._own) for pair in store.values() for tensor in pair]
        sizes.append(sum(tensor.nbytes for tensor in stores) / TOKEN)
        widths.append(len(jobs))

    decoder(engines[1]).admit = watched
    free, bounded = [await all_of(engine, requests) for engine in engines]
    assert max(sizes) <= most and len(sizes) > 2 and max(widths) > 1
    assert [[c.token_ids for c in node] for node in free] == [[c.token_ids for c in node] for node in bounded]
    assert worst(model, requests, bounded) < 1e-4
    if lockstep:
        assert await all_of(engines[1], requests) == bounded, "bit for bit"


@pytest.mark.parametrize("lockstep", [True, False])
async def test_what_has_left_takes_no_room_of_what_comes(lockstep, tokenizer):
    """Long prompts after short ones decode as many at a time as alone."""
    model = build()
    short = [request(5, seed=i, n=1, max_tokens=14 + i % 6) for i in range(39)]
    short += [request(5, seed=39, n=1, max_tokens=20)]  # it goes on when the others have left
    long = [request(60, seed=100 + i, n=1, max_tokens=13 if i and i % 3 == 0 else 20) for i in range(60)]

    async def steps(*requests: Request) -> int:
        engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, 64, lockstep, max_cache_gib=1000 * TOKEN / 2**30)
        count, step = [], decoder(engine).step
        decoder(engine).eos = frozenset()  # all completions have their full length
        decoder(engine).step = lambda: (count.append(len(decoder(engine).rows)), step())
        await all_of(engine, requests)
        return len(count)

    assert await steps(*short, *long) < 1.3 * (await steps(*long) + await steps(*short))


async def test_a_prompt_larger_than_the_cache_decodes_alone(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer, max_cache_gib=TOKEN / 2**30)
    assert [len(node) for node in await all_of(engine, [request(4, n=2), request(6, n=3)])] == [2, 3]


@pytest.mark.parametrize("gib", [0, -1, float("nan"), "1", True])
def test_a_cache_that_holds_nothing_is_refused(gib, tokenizer):
    with pytest.raises(ValueError, match=r"engine\.max_cache_gib must be above 0, got"):
        TorchEngine({"p": build()}, tokenizer, max_cache_gib=gib)


@pytest.mark.parametrize("lockstep", [True, False])
async def test_many_coroutines_with_several_turns(lockstep, tokenizer):
    engine = TorchEngine({"p": build(), "q": build(llama)}, tokenizer, max_batch_rows=32, lockstep=lockstep)
    assert isinstance(engine, Engine)

    async def episode(i: int) -> int:
        for turn in range(3):
            await asyncio.sleep(0.001 * (i % 3))
            node = await engine.generate(request(3 + i % 5, seed=10 * i + turn, policy="pq"[i % 2], n=2))
            assert len(node) == 2 and {c.policy for c in node} == {"pq"[i % 2]}
        return i

    assert await asyncio.gather(*map(episode, range(30))) == list(range(30))
    await engine.close()


@pytest.mark.parametrize("delays", [(0.0, 0.0), (0.01, 0.0), (0.0, 0.01)])
async def test_lockstep_repeats_bit_for_bit_however_long_the_world_takes(delays, tokenizer):
    """Two engines of unlike speed and worlds of unlike speed: the batches, hence the bits, are the same."""

    async def play(pauses: Sequence[float]) -> tuple[list, list]:
        engines = {name: TorchEngine({name: build(seed=ord(name))}, tokenizer, max_batch_rows=16) for name in "pq"}
        batches: list[tuple[str, int]] = []
        for name, engine in engines.items():
            one, admit = decoder(engine, name), decoder(engine, name).admit
            one.admit = lambda jobs, name=name, admit=admit: (
                time.sleep(pauses["pq".index(name)]),
                batches.append((name, tuple(j.request.key for j in jobs))),
                admit(jobs),
            )

        async def episode(i: int) -> list:
            nodes = []
            for turn in range(3):
                name = "pq"[(i + turn) % 2]
                nodes.append(await engines[name].generate(request(3 + i, seed=turn, n=2, policy=name)))
                with hold():
                    await asyncio.sleep(pauses[i % 2])
            return nodes

        return await asyncio.gather(*map(episode, range(9))), sorted(batches)

    first, second = await play((0.0, 0.0)), await play(delays)
    assert first == second


async def test_arrival_order_does_not_matter_in_lockstep(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer, max_batch_rows=8)
    requests = [request(3 + i, seed=i) for i in range(9)]
    assert await all_of(engine, requests) == (await all_of(engine, requests[::-1]))[::-1]


async def test_asking_inside_hold_is_an_error_and_not_a_deadlock(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    with hold():
        with pytest.raises(RuntimeError, match=r"generate\(\) inside hold\(\)"):
            await engine.generate(request(4))
        later = asyncio.create_task(engine.generate(request(4)))  # runs after the hold
    assert len(await later) == 3


async def test_a_hold_keeps_the_round_from_beginning(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    waiting = asyncio.create_task(engine.generate(request(4)))
    with hold():
        for _ in range(10 * _PASSES):
            await asyncio.sleep(0)
        assert not waiting.done() and decoder(engine).forwarded["prompt"] == 0
    assert len(await waiting) == 3


async def test_without_lockstep_a_request_joins_the_running_batch(tokenizer):
    engine = TorchEngine({"p": build(eos_token_id=None)}, tokenizer, lockstep=False)
    started, step = asyncio.Event(), decoder(engine).step
    loop = asyncio.get_running_loop()
    decoder(engine).step = lambda: (loop.call_soon_threadsafe(started.set), time.sleep(0.002), step())
    decoder(engine).eos = frozenset()
    slow = asyncio.create_task(engine.generate(request(4, max_tokens=80)))
    await started.wait()
    await engine.generate(request(5, max_tokens=2))
    assert not slow.done()
    assert len((await slow)[0].token_ids) == 80


async def test_a_cancelled_caller_leaves_the_batch(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    decoder(engine).eos = frozenset()
    task = asyncio.create_task(engine.generate(request(4, max_tokens=80)))
    other = asyncio.create_task(engine.generate(request(5, max_tokens=80)))
    step = decoder(engine).step
    loop = asyncio.get_running_loop()
    decoder(engine).step = lambda: (loop.call_soon_threadsafe(task.cancel), time.sleep(0.002), step())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await other) == 3
    assert decoder(engine).forwarded["completion"] < 6 * 79


@pytest.mark.parametrize("lockstep", [True, False])
async def test_a_crash_reaches_every_caller_and_the_engine_goes_on(lockstep, tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer, lockstep=lockstep)
    step = decoder(engine).step

    def crash() -> None:
        raise RuntimeError("an illegal memory access")

    decoder(engine).step = crash
    errors = await asyncio.gather(*(engine.generate(request(4 + i)) for i in range(5)), return_exceptions=True)
    assert [str(error) for error in errors] == ["an illegal memory access"] * 5
    assert engine.drain() == {"faults/engine": 1, "faults/oom_decoding": 0} != engine.drain()
    decoder(engine).step = step
    assert len(await engine.generate(request(4))) == 3


async def test_logits_that_are_not_finite_name_policy_and_version(tokenizer):
    model = build()
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    broken = model.state_dict() | {"model.norm.weight": torch.full((32,), float("nan"))}
    await engine.load("p", broken, 3)
    with pytest.raises(FloatingPointError, match="policy 'p', version 3"):
        await engine.generate(request(4))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (request(4, policy="q"), "no policy 'q' in this engine; it has p"),
        (request(0), "the prompt is empty"),
        (request(4, n=0), "n must be between 1"),
        (request(90), r"policy 'p'.*90 tokens and max_tokens = 8 exceed the context of 96"),
        (Request("p", (3, VOCABULARY), 1, Sampling(), 0), "outside of the vocabulary of 40"),
    ],
)
async def test_wrong_requests_are_refused(wrong, message, tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    with pytest.raises(ValueError, match=message):
        await engine.generate(wrong)


async def test_the_context_may_be_filled_to_the_last_token(tokenizer):
    model = build(eos_token_id=None)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    requests = [request(88)]
    assert worst(model, requests, await all_of(engine, requests)) < 1e-4


async def test_deadlines(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    with pytest.raises(TimeoutError, match="policy 'p'"):
        await engine.generate(request(4, deadline=time.monotonic() - 1))
    late, step = threading.Event(), decoder(engine).step
    decoder(engine).eos = frozenset()
    decoder(engine).step = lambda: (late.wait(60), step())
    with pytest.raises(TimeoutError):
        await engine.generate(request(4, max_tokens=80, deadline=time.monotonic() + 0.03))
    late.set()
    assert len(await engine.generate(request(4, deadline=time.monotonic() + 60))) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.norm.weight"), "missing: model.norm.weight"),
        (lambda w: w.update(extra=torch.ones(1)), "unknown: extra"),
        (lambda w: w.update({"model.norm.weight": torch.ones(3)}), r"of another shape: model.norm.weight \(\(3,\) for"),
        (lambda w: w.update({"lm_head.weight": w["lm_head.weight"] + 1}), "tied but different: .*lm_head.weight"),
    ],
)
async def test_loading_is_strict(change, message, tokenizer):
    model = build(tie_word_embeddings=True)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    weights = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    change(weights)
    with pytest.raises(ValueError, match=message):
        await engine.load("p", weights, 1)
    (completion,) = await engine.generate(request(4, n=1))
    assert completion.version == 0
    assert worst(model, [request(4, n=1)], [[completion]]) < 1e-4


async def test_a_tied_weight_may_be_given_once_and_in_another_dtype(tokenizer):
    engine = TorchEngine({"p": build(tie_word_embeddings=True)}, tokenizer)
    other = build(seed=1, tie_word_embeddings=True)
    weights = {name: tensor.double() for name, tensor in other.state_dict().items() if name != "lm_head.weight"}
    await engine.load("p", weights, 1)
    assert worst(other, [request(4)], await all_of(engine, [request(4)])) < 1e-4


@pytest.mark.parametrize("lockstep", [True, False])
async def test_a_completion_is_of_one_version(lockstep, tokenizer):
    """Weights that are loaded while requests run and wait: those that wait get the new ones."""
    model, other = build(), build(seed=1)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, max_batch_rows=8, lockstep=lockstep)
    step = decoder(engine).step
    decoder(engine).step = lambda: (time.sleep(0.002), step())
    requests = [request(3 + i, seed=i, max_tokens=20) for i in range(12)]
    tasks = [asyncio.create_task(engine.generate(r)) for r in requests]
    await asyncio.wait(tasks[:1])
    await engine.load("p", other.state_dict(), 1)
    nodes = await asyncio.gather(*tasks)
    versions = [{c.version for c in node} for node in nodes]
    assert versions[0] == {0} and versions[-1] == {1} and all(len(v) == 1 for v in versions)
    assert not any(c.versions for node in nodes for c in node)
    for each, node, version in zip(requests, nodes, versions, strict=True):
        assert worst(other if version == {1} else model, [each], [node]) < 1e-4


async def test_sleep_wake_close(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    under_way = asyncio.create_task(engine.generate(request(4)))
    await asyncio.sleep(0)
    await engine.sleep()
    assert under_way.done() and len(await under_way) == 3
    with pytest.raises(RuntimeError, match="asleep"):
        await engine.generate(request(4))
    await engine.wake()
    assert len(await engine.generate(request(4))) == 3
    decoding, step, loop = asyncio.Event(), decoder(engine).step, asyncio.get_running_loop()
    decoder(engine).eos = frozenset()
    decoder(engine).step = lambda: (loop.call_soon_threadsafe(decoding.set), step())
    waiting = [asyncio.create_task(engine.generate(request(4 + i, max_tokens=60))) for i in range(4)]
    await decoding.wait()
    await engine.close()
    await engine.close()
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(error, EngineClosedError)
    with pytest.raises(EngineClosedError):
        await engine.generate(request(4))


async def test_close_right_after_a_request(tokenizer):
    """Decoding had not begun."""
    engine = TorchEngine({"p": build()}, tokenizer, lockstep=False)
    waiting = [asyncio.create_task(engine.generate(request(4 + i))) for i in range(3)]
    await asyncio.sleep(0)
    await engine.close()
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(error, EngineClosedError)


def test_an_engine_needs_policies_and_rows(tokenizer):
    with pytest.raises(ValueError, match="at least one policy"):
        TorchEngine({}, tokenizer)
    with pytest.raises(ValueError, match="max_batch_rows must be a whole number of at least 1"):
        TorchEngine({"p": build()}, tokenizer, max_batch_rows=0)
