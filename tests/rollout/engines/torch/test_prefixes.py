"""Prefixes: later prompts that begin with earlier prompts and completions, read from there on."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from troupe.experience import Completion, Request
from troupe.rollout.engines.base import Remembering
from troupe.rollout.engines.lora import Adapted
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.engines.torch.prefixes import Part, Piece, PrefixCache

from .conftest import ARCHITECTURES, EOS, all_of, build, decoder, gemma3, gpt2, qwen3, request, worst
from .test_in_flight import adapter, due_after, merged


def read(engine: TorchEngine, policy: str = "p") -> int:
    """The tokens of prompts that the model has read."""
    return decoder(engine, policy).forwarded["prompt"]


def reply(asked: Request, said: Completion, *new: int) -> Request:
    """The next turn of a chat: the prompt, what was said, without the end of sequence, and something ``new``."""
    tokens = tuple(token for token in said.token_ids if token != EOS)
    return replace(asked, prompt_ids=(*asked.prompt_ids, *tokens, *new), seed=asked.seed + 100)


def branches(asked: Sequence[Request], said: Sequence[Sequence[Completion]]) -> list[Request]:
    """A reply to every completion, of unlike lengths."""
    pairs = [(one, c) for one, node in zip(asked, said, strict=True) for c in node]
    return [reply(one, c, *range(2, 5 + i % 4)) for i, (one, c) in enumerate(pairs)]


@pytest.mark.parametrize(("architecture", "dtype"), [*((each, None) for each in ARCHITECTURES), (qwen3, "bfloat16")])
async def test_logprobs_after_a_prefix_are_those_of_a_plain_forward_pass(architecture, dtype, tokenizer):
    """Three turns; each of the second and third turns branches from one completion, and some prompts are new."""
    model = build(architecture)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, dtype=dtype, prefix_cache_gib=1)
    requests, far = [request(n, seed=n, n=2) for n in (7, 12, 20)], 1e-4 if dtype is None else 0.7
    for turn in range(3):
        before, said = read(engine), await all_of(engine, requests)
        assert worst(model, requests, said) < far
        lengths = [len(each.prompt_ids) for each in requests]
        if turn:  # of a completion everything but its last token is known, and what follows is read
            assert read(engine) - before <= 9 + sum(8 for _ in lengths)
        requests = [*branches(requests, said)[:: 1 + turn], request(9, seed=50 + turn, n=2)]
    assert len(decoder(engine).prefixes) > 10
    await engine.close()


async def test_a_prompt_is_read_from_where_it_is_known(tokenizer, forward):
    """From the last token, if all is known; after a beginning of at least a quarter; else from its first token."""
    model = build(eos_token_id=None)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, prefix_cache_gib=1)
    decoder(engine).eos = frozenset()
    assert isinstance(decoder(engine).forward, forward)
    first = request(16, n=2)
    other = 2 if first.prompt_ids[8] != 2 else 3
    (said,) = await all_of(engine, [first])
    for asked, expected in [
        (first, 1),
        (reply(first, said[0]), 1),  # after the last token of a completion, which was never read
        (reply(first, said[1], 5, 6, 7), 4),
        (replace(first, prompt_ids=(*first.prompt_ids[:8], *[other] * 24)), 24),
        (replace(first, prompt_ids=(*first.prompt_ids[:8], *[other + 1] * 25)), 33),
    ]:
        before = read(engine)
        assert worst(model, [asked], await all_of(engine, [asked])) < 1e-4
        assert read(engine) - before == expected
    await engine.close()


@pytest.mark.parametrize("architecture", [qwen3, gemma3, gpt2])
async def test_padding_after_a_long_prefix_stays_within_the_context(architecture, tokenizer):
    """A long prompt that grew little beside a short one that grew much: together they are wider than the context."""
    model = build(architecture, eos_token_id=None)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, lockstep=True, prefix_cache_gib=1)
    decoder(engine).eos = frozenset()
    first = [request(n, seed=n) for n in (70, 16)]
    said = [completions[0] for completions in await all_of(engine, first)]
    grown = [
        reply(asked, one, *(2 + i % 30 for i in range(n))) for asked, one, n in zip(first, said, (5, 50), strict=True)
    ]
    lengths = [len(each.prompt_ids) for each in grown]
    assert max(lengths) + 8 <= 96 < max(lengths) - 5 + 50
    assert worst(model, grown, await all_of(engine, grown)) < 1e-4
    await engine.close()


async def test_rows_that_join_late_and_leave_early_are_kept_right(tokenizer):
    """Without lockstep, in batches that are too small for all: the ring of own columns wraps, groups come and go."""
    model = build()
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, 5, lockstep=False, prefix_cache_gib=1)
    requests = [request(2 + 5 * i % 31, seed=i, n=1 + i % 3, max_tokens=3 + 7 * i % 17) for i in range(7)]
    for _ in range(2):
        said = await all_of(engine, requests)
        assert worst(model, requests, said) < 1e-4
        requests = branches(requests, said)
    before, whole = read(engine), sum(len(each.prompt_ids) for each in requests)
    assert worst(model, requests, await all_of(engine, requests)) < 1e-4
    assert read(engine) - before < whole / 2
    await engine.close()


async def test_the_bound_is_kept_and_what_was_dropped_is_read_again(tokenizer):
    model = build()
    numbers = 2 * 2 * 2 * 8  # layers, keys and values, heads, width
    limit = 60 * numbers * 4
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, prefix_cache_gib=limit / 2**30)
    requests = [request(20, seed=i, n=2) for i in range(6)]
    said = await all_of(engine, requests)
    assert 0 < decoder(engine).prefixes.bytes <= limit
    replies = branches(requests, said)
    before, whole = read(engine), sum(len(each.prompt_ids) for each in replies)
    assert worst(model, replies, await all_of(engine, replies)) < 1e-4
    assert whole / 2 < read(engine) - before < whole, "few are known"
    assert 0 < decoder(engine).prefixes.bytes <= limit
    await engine.close()


@pytest.mark.parametrize("version", [0, 1])
async def test_new_weights_read_nothing_of_old_ones(version, tokenizer):
    """Also where the number of the version is the same."""
    model, other = build(), build(seed=1)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, prefix_cache_gib=1)
    requests = [request(9, seed=i) for i in range(3)]
    replies = branches(requests, await all_of(engine, requests))
    await engine.load("p", other.state_dict(), version)
    assert not decoder(engine).prefixes.bytes
    before = read(engine)
    assert worst(other, replies, await all_of(engine, replies)) < 1e-4
    assert read(engine) - before == sum(len(each.prompt_ids) for each in replies)
    with pytest.raises(ValueError, match="do not fit"):
        await engine.load("p", {}, 2)
    assert decoder(engine).prefixes.bytes, "the weights are those of before"
    await engine.close()


async def test_completions_of_two_versions_are_not_kept(tokenizer):
    """With weights in flight: the keys and values of their first tokens are the old weights'."""
    models = [build(seed=seed, eos_token_id=None) for seed in range(2)]
    engine = TorchEngine({"p": copy.deepcopy(models[0])}, tokenizer, 256, False, in_flight=True, prefix_cache_gib=1)
    (due,) = due_after(engine, [5])
    requests = [request(9, seed=i, max_tokens=20) for i in range(2)]
    answers = asyncio.create_task(all_of(engine, requests))
    await due.wait()
    await engine.load("p", models[1].state_dict(), 1)
    said = await answers
    assert {c.versions for node in said for c in node} == {(0,) * 6 + (1,) * 14}
    assert not len(decoder(engine).prefixes)
    replies = branches(requests, said)
    again = await all_of(engine, replies)
    assert worst(models[1], replies, again) < 1e-4
    assert len(decoder(engine).prefixes), "what the new weights have read alone is"
    more = branches(replies, again)
    assert worst(models[1], more, await all_of(engine, more)) < 1e-4
    await engine.close()


async def test_policies_on_one_model_keep_their_own(tokenizer, forward):
    model, weights = build(), {name: adapter(build(), seed) for name, seed in (("p", 1), ("q", 2), ("new", 3))}
    shared = copy.deepcopy(model)
    engine = TorchEngine({n: Adapted(shared, weights[n], 0.3) for n in "pq"}, tokenizer, prefix_cache_gib=1)
    plain = {name: merged(model, each) for name, each in weights.items()}
    mine = [request(9, seed=i) for i in range(3)]
    theirs = [replace(each, policy="q") for each in mine]
    said = await all_of(engine, [*mine, *theirs])
    for policy, asked in (("p", branches(mine, said[:3])), ("q", branches(theirs, said[:3]))):
        # q is asked for what p has said: of its own it knows the first prompts alone.
        before, nodes = read(engine, policy), await all_of(engine, asked)
        assert worst(plain[policy], asked, nodes) < 1e-4
        known = 9 * len(asked) if policy == "q" else 0
        assert read(engine, policy) - before <= sum(len(each.prompt_ids) for each in asked) - known
    await engine.load("p", weights["new"], 1)
    assert not decoder(engine, "p").prefixes.bytes and decoder(engine, "q").prefixes.bytes
    assert worst(plain["new"], mine, await all_of(engine, mine)) < 1e-4
    assert worst(plain["q"], theirs, await all_of(engine, theirs)) < 1e-4
    await engine.close()


async def test_in_lockstep_a_chat_is_the_same_to_the_bit_once_all_is_forgotten(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer, prefix_cache_gib=1)
    assert isinstance(engine, Remembering)

    async def chat() -> list[list[list[Completion]]]:
        requests, turns = [request(7 + i, seed=i, n=2) for i in range(4)], []
        for _ in range(3):
            turns.append(await all_of(engine, requests))
            requests = branches(requests, turns[-1])[::2]
        return turns

    first = await chat()
    for drop in (engine.forget, engine.sleep):
        await drop()
        assert not decoder(engine).prefixes.bytes and not len(decoder(engine).prefixes)
        await engine.wake()
        assert await chat() == first
    await engine.close()


@pytest.mark.parametrize("lockstep", [True, False])
async def test_after_a_failure_nothing_is_kept(lockstep, tokenizer):
    model = build()
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, lockstep=lockstep, prefix_cache_gib=1)
    (said,) = await all_of(engine, [request(9)])
    step = decoder(engine).step

    def crash() -> None:
        raise RuntimeError("an illegal memory access")

    decoder(engine).step = crash
    with pytest.raises(RuntimeError, match="illegal"):
        await engine.generate(reply(request(9), said[0], 3))
    assert not decoder(engine).prefixes.bytes
    decoder(engine).step = step
    asked = [reply(request(9), each, 3) for each in said]
    assert worst(model, asked, await all_of(engine, asked)) < 1e-4
    await engine.close()


def piece(tokens: int) -> Piece:
    """Of 8 bytes per token."""
    return Piece({0: (torch.zeros(1, tokens, 1), torch.zeros(1, tokens, 1))})


def test_the_longest_beginning_of_any_sequence_is_found():
    cache, first, second = PrefixCache(1000), piece(4), piece(3)
    cache.add((1, 2, 3, 4), (Part(first, 4),))
    cache.add((1, 2, 3, 9, 9, 9), (Part(first, 3), Part(second, 3)))
    assert cache.find((1, 2, 3, 9, 9, 5)).parts == (Part(first, 3), Part(second, 2))
    assert cache.find((1, 2, 3, 4, 5)).parts == (Part(first, 4),)
    assert cache.find((1, 2, 3, 4)).length == 3, "the last token is read, for its logits"
    assert cache.find((1, 2, 7)).parts == (Part(first, 2),)
    assert cache.find((1,)).length == cache.find((2, 2)).length == cache.find((1, 5, 5, 5, 5)).length == 0


def test_the_least_recently_used_sequence_goes_first_and_shared_pieces_last():
    cache, shared = PrefixCache(80), piece(4)
    cache.add((1, 1, 1, 1), (Part(shared, 4),))
    for token in (2, 3):  # two branches
        cache.add((1, 1, 1, 1, token, token), (Part(shared, 4), Part(piece(2), 2)))
    assert (len(cache), cache.bytes) == (3, 64), "a shared piece counts once"
    cache.find((1, 1, 1, 1, 2, 2, 2))
    cache.add((5, 5, 5), (Part(piece(3), 3),))
    assert (len(cache), cache.bytes) == (2, 72), "the prompt alone was oldest, then the other branch"
    assert cache.find((1, 1, 1, 1, 2, 2, 2)).length == 6 and cache.find((5, 5, 5, 5)).length == 3
    cache.add((6,) * 11, (Part(piece(11), 11),))
    assert (len(cache), cache.bytes) == (0, 0), "larger than the bound"


@pytest.mark.parametrize("gib", [-1, float("nan"), "1", True])
def test_a_bound_that_is_none_is_refused(gib, tokenizer):
    with pytest.raises(ValueError, match=r"engine\.prefix_cache_gib must be at least 0"):
        TorchEngine({"p": build()}, tokenizer, prefix_cache_gib=gib)
