"""The torch engine against plain ``transformers``: log-probs, draws, ends, batches, lockstep, loading and refusals."""

from __future__ import annotations

import asyncio
import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from scipy.stats import chisquare
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from troupe.experience import Completion, Request, Sampling
from troupe.rollout.engines.base import Engine, EngineClosedError, UnsupportedModelError
from troupe.rollout.engines.lockstep import hold
from troupe.rollout.engines.torch import decoding
from troupe.rollout.engines.torch.decoding import _chunks, _group_width
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.engines.torch.forward import FusedForward, ModuleForward
from troupe.rollout.engines.torch.sampling import Knobs, distribution, draw, uniforms
from troupe.rollout.engines.torch.shared_prompt import moves

VOCABULARY, EOS = 40, 1
SIZE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=96, bos_token_id=None, eos_token_id=EOS,
            pad_token_id=0)  # fmt: skip


def qwen3(**changes: object) -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SIZE | {"head_dim": 8} | changes))


def qwen2(**changes: object) -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**SIZE | changes))


def llama(**changes: object) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZE | changes))


def gpt2(**changes: object) -> PreTrainedModel:
    sizes = dict(n_embd=32, n_layer=2, n_head=4, n_positions=96, bos_token_id=None, eos_token_id=EOS)
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes | changes))


ARCHITECTURES = [qwen3, qwen2, llama, gpt2]


def build(architecture: Callable[..., PreTrainedModel] = qwen3, seed: int = 0, **changes: object) -> PreTrainedModel:
    """A small model whose distributions are far from uniform."""
    torch.manual_seed(seed)
    model = architecture(**changes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(5)
    return model


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    words = {word: i for i, word in enumerate(["<pad>", "<eos>", *(f"w{i}" for i in range(2, VOCABULARY))])}
    base = Tokenizer(WordLevel(words, unk_token="<pad>"))
    base.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=base, pad_token="<pad>", eos_token="<eos>")


def request(length: int, seed: int = 0, n: int = 3, policy: str = "p", deadline: float | None = None,
            **sampling: object) -> Request:  # fmt: skip
    """A request whose prompt is fixed by its length and seed."""
    generator = torch.Generator().manual_seed(1000 * length + seed)
    prompt = torch.randint(2, VOCABULARY, (length,), generator=generator).tolist()
    settings = Sampling(**{"max_tokens": 8} | sampling)
    return Request(policy, tuple(prompt), n, settings, seed, (length, seed), deadline)


async def all_of(engine: TorchEngine, requests: Sequence[Request]) -> list[list[Completion]]:
    return list(await asyncio.gather(*(engine.generate(r) for r in requests)))


def decoder(engine: TorchEngine, policy: str = "p"):
    return engine._decoders[policy]


def plain_logprobs(model: PreTrainedModel, request: Request, tokens: Sequence[int]) -> torch.Tensor:
    """Log-probs of ``tokens`` by one forward pass without a cache, truncated by sorting in plain Python."""
    ids = torch.tensor([[*request.prompt_ids, *tokens]])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(request.prompt_ids) - 1 : -1]
    sampling, found = request.sampling, []
    for row, token in zip(logits.double() / sampling.temperature, tokens, strict=True):
        probabilities = sorted(((p, i) for i, p in enumerate(row.softmax(-1).tolist())), key=lambda x: (-x[0], x[1]))
        kept = probabilities[: sampling.top_k or None]
        total, mass, nucleus = sum(p for p, _ in kept), 0.0, []
        for p, i in kept:
            if mass / total < sampling.top_p:
                nucleus.append((p, i))
            mass += p
        chosen = {i: p for p, i in nucleus}
        assert token in chosen, "a token outside of the truncated distribution"
        found.append(math.log(chosen[token] / sum(chosen.values())))
    return torch.tensor(found, dtype=torch.float64)


def worst(model: PreTrainedModel, requests: Sequence[Request], nodes: Sequence[Sequence[Completion]]) -> float:
    """The largest difference of a behaviour log-prob from the plain forward pass."""
    return max(
        (torch.tensor(c.logprobs, dtype=torch.float64) - plain_logprobs(model, r, c.token_ids)).abs().max().item()
        for r, node in zip(requests, nodes, strict=True)
        for c in node
    )


# ---- log-probs ------------------------------------------------------------------------------------------------------

SAMPLINGS = [{}, {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"temperature": 1.5, "top_k": 12, "top_p": 0.9}]


@pytest.fixture(params=["own code", "fused"])
def forward(request, monkeypatch) -> type:
    """The forward pass of the Llama family: the models' own code or the fused one."""
    if request.param == "fused":
        return FusedForward
    monkeypatch.setattr(FusedForward, "applies", staticmethod(lambda model: False))
    return ModuleForward


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_logprobs_are_those_of_a_plain_forward_pass(architecture, forward, tokenizer):
    model = build(architecture)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    assert type(decoder(engine).forward) is (forward if architecture is not gpt2 else ModuleForward)
    requests = [request(length, **SAMPLINGS[i % 5]) for i, length in enumerate([1, 2, 30, 7, 7, 19, 3, 45, 12, 30])]
    assert worst(model, requests, await all_of(engine, requests)) < 1e-4
    other = build(architecture, seed=1)
    await engine.load("p", other.state_dict(), 5)
    nodes = await all_of(engine, requests)
    assert worst(other, requests, nodes) < 1e-4
    assert {c.version for node in nodes for c in node} == {5}
    await engine.close()


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        (qwen3, {"num_key_value_heads": 4, "head_dim": 16, "attention_bias": True, "tie_word_embeddings": True}),
        (qwen2, {"num_key_value_heads": 1}),
        (llama, {"mlp_bias": True, "attention_bias": True}),
        (llama, {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    ],
)
async def test_variants_of_the_fused_architectures(architecture, changes, tokenizer):
    model = build(architecture, **changes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:  # as trained: neither zeros nor ones
                parameter.add_(torch.rand_like(parameter))
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    assert type(decoder(engine).forward) is FusedForward
    requests = [request(4), request(17)]
    assert worst(model, requests, await all_of(engine, requests)) < 1e-4


def test_what_is_not_fused_runs_the_models_own_code():
    assert not FusedForward.applies(build(gpt2))
    assert not FusedForward.applies(build().bfloat16())
    assert not FusedForward.applies(build(hidden_act="gelu"))


async def test_float64_models_agree_to_nine_digits(tokenizer):
    model = build(gpt2).double()  # Llama's and Qwen3's norms compute in float32 whatever the weights are
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    requests = [request(4), request(9)]
    assert worst(model, requests, await all_of(engine, requests)) < 1e-9


async def test_bfloat16_models_decode(tokenizer):
    model = build().bfloat16()
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    requests = [request(4), request(9)]
    nodes = await all_of(engine, requests)
    assert worst(model, requests, nodes) < 0.5
    assert all(isinstance(x, float) for c in nodes[0] for x in c.logprobs)


@pytest.mark.parametrize("lockstep", [True, False])
async def test_rows_that_join_late_and_leave_early_get_exact_logprobs(lockstep, forward, tokenizer):
    """More requests than rows, of many lengths: the ring of own columns wraps and widens, groups come and go."""
    model = build()
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, max_batch_rows=8, lockstep=lockstep)
    requests = [request(2 + 5 * i % 31, seed=i, n=1 + i % 4, max_tokens=3 + 7 * i % 23) for i in range(24)]
    assert worst(model, requests, await all_of(engine, requests)) < 1e-4


async def test_prompts_are_read_in_parts_that_fit_the_budgets(tokenizer, monkeypatch):
    assert list(_chunks([4, 4, 5, 9, 90], vocabulary=100)) == [(0, 5)]
    monkeypatch.setattr(decoding, "PREFILL_TOKENS", 16)
    assert list(_chunks([4, 4, 5, 9, 90], vocabulary=100)) == [(0, 3), (3, 4), (4, 5)]
    monkeypatch.setattr(decoding, "PREFILL_LOGITS", 200)
    assert list(_chunks([4, 4, 5, 9, 90], vocabulary=100)) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    model = build()
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    requests = [request(length, seed=length) for length in (4, 4, 5, 9, 40)]
    assert worst(model, requests, await all_of(engine, requests)) < 1e-4


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_greedy_equals_transformers_generate(architecture, tokenizer):
    model = build(architecture)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    requests = [request(length, n=2, temperature=0.0, max_tokens=12) for length in (3, 17, 40)]
    for asked, node in zip(requests, await all_of(engine, requests), strict=True):
        ids = torch.tensor([asked.prompt_ids])
        expected = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12)
        for completion in node:
            assert completion.token_ids == tuple(expected[0, ids.shape[1] :].tolist())
            assert set(completion.logprobs) == {0.0}


# ---- draws ----------------------------------------------------------------------------------------------------------


async def test_first_tokens_follow_the_softmax(tokenizer):
    model = build(eos_token_id=None)
    asked = request(6, n=4000, max_tokens=1)
    (node,) = await all_of(TorchEngine({"p": copy.deepcopy(model)}, tokenizer, max_batch_rows=4000), [asked])
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([asked.prompt_ids])).logits[0, -1].double().softmax(-1) * 4000
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in node]), minlength=VOCABULARY).double()
    assert expected.min() > 5, "too few draws for the test"
    assert chisquare(counts, expected).pvalue > 1e-3


def test_uniforms_depend_on_seed_and_row_only():
    assert uniforms(7, 3, 5) == uniforms(7, 3, 9)[:5]
    assert len({tuple(uniforms(seed, row, 2)) for seed in (0, 1, 2**63 - 1) for row in range(5)}) == 15


def test_a_draw_never_takes_a_token_of_probability_zero():
    logits = torch.tensor([[float("-1e30"), 2.0, float("-1e30"), 1.0, float("-1e30")]]).repeat(4, 1)
    edge = torch.tensor([0.0, 1 - 2.0**-53, 0.5, 0.9999999], dtype=torch.float64)
    tokens, logprobs = draw(logits, Knobs(None, None, None, None), edge)
    assert tokens.tolist() == [1, 3, 1, 3] and torch.isfinite(logprobs).all()


def test_truncation_of_mixed_rows():
    logits = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log().repeat(4, 1)
    ways = [Sampling(), Sampling(top_k=2), Sampling(top_p=0.5), Sampling(top_p=0.9, top_k=3)]
    found = distribution(logits, Knobs.of(ways, 4, logits.device)).exp()
    wanted = [[0.5, 0.25, 0.15, 0.1], [2 / 3, 1 / 3, 0, 0], [1, 0, 0, 0], [5 / 9, 2.5 / 9, 1.5 / 9, 0]]
    assert torch.allclose(found, torch.tensor(wanted), atol=1e-6)


def test_a_tiny_temperature_is_nearly_greedy():
    logits = torch.tensor([[1e4, 2e4, -3e4]])
    tokens, logprobs = draw(logits, Knobs.of([Sampling(temperature=1e-30)], 3, logits.device), torch.tensor([0.99]))
    assert tokens.tolist() == [1] and logprobs.tolist() == [0.0]


async def test_a_request_draws_the_same_whatever_shares_its_batch(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    requests = [request(length, seed=length) for length in range(3, 12)]
    together = await all_of(engine, requests)
    for asked, node in zip(requests, together, strict=True):
        (alone,) = await all_of(engine, [asked])
        assert [c.token_ids for c in alone] == [c.token_ids for c in node]
        assert len({c.token_ids for c in node}) > 1


# ---- ends -----------------------------------------------------------------------------------------------------------


async def test_end_of_sequence_and_max_tokens(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    nodes = await all_of(engine, [request(5, seed=i, n=6, max_tokens=20) for i in range(12)])
    completions = [c for node in nodes for c in node]
    assert Counter(c.finish_reason for c in completions).keys() == {"stop", "length"}
    for c in completions:
        assert EOS not in c.token_ids[:-1]
        assert (c.finish_reason == "stop") == (c.token_ids[-1] == EOS)
        assert len(c.token_ids) == 20 or c.finish_reason == "stop"
        assert c.text == " ".join(f"w{i}" for i in c.token_ids if i > EOS)


async def test_the_generation_config_may_name_several_ends(tokenizer):
    model = build()
    model.generation_config.eos_token_id = [5, 6, 7, 8]
    nodes = await all_of(TorchEngine({"p": model}, tokenizer), [request(5, seed=i, max_tokens=40) for i in range(8)])
    stopped = [c for node in nodes for c in node if c.finish_reason == "stop"]
    assert {c.token_ids[-1] for c in stopped} > {EOS}
    assert all(c.text == tokenizer.decode(c.token_ids[:-1], skip_special_tokens=True) for c in stopped)


@pytest.mark.parametrize("stop", ["w7", "7 w", "w12 w"])
async def test_stop_strings_end_the_completion_and_are_cut_off(stop, tokenizer):
    engine = TorchEngine({"p": build(eos_token_id=None)}, tokenizer)
    free = [request(5, seed=i, n=8, max_tokens=40) for i in range(6)]
    bound = [request(5, seed=i, n=8, max_tokens=40, stop=("nothing", stop)) for i in range(6)]
    stopped = 0
    for node, without in zip(await all_of(engine, bound), await all_of(engine, free), strict=True):
        for c, whole in zip(node, without, strict=True):
            assert c.token_ids == whole.token_ids[: len(c.token_ids)]
            assert c.text == whole.text.split(stop)[0]
            if stop in whole.text:
                stopped += 1
                assert c.finish_reason == "stop"
                assert stop in tokenizer.decode(c.token_ids) and stop not in tokenizer.decode(c.token_ids[:-1])
    assert stopped


async def test_of_several_stop_strings_the_first_in_the_text_cuts(tokenizer):
    engine = TorchEngine({"p": build(eos_token_id=None)}, tokenizer)
    (node,) = await all_of(engine, [request(5, n=12, max_tokens=40, stop=("3", "w3"))])
    cut = [c for c in node if c.finish_reason == "stop" and tokenizer.decode(c.token_ids[-1:]).startswith("w3")]
    assert cut and all(c.text == tokenizer.decode(c.token_ids[:-1]) + " " * (len(c.token_ids) > 1) for c in cut)


# ---- work -----------------------------------------------------------------------------------------------------------


async def test_a_prompt_is_read_once_and_finished_rows_leave(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    requests = [request(length, seed=length, n=5, max_tokens=16) for length in (4, 9, 9, 23)]
    again = Request("p", requests[0].prompt_ids, 5, requests[0].sampling, seed=99)
    nodes = await all_of(engine, [*requests, again])
    assert decoder(engine).forwarded["prompt"] == 4 + 9 + 23
    # The last token of a completion is never fed back, and no row is fed after its end.
    assert decoder(engine).forwarded["completion"] == sum(len(c.token_ids) - 1 for node in nodes for c in node)


async def test_max_batch_rows_is_kept(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer, max_batch_rows=6)
    seen, step = [], decoder(engine).step
    decoder(engine).step = lambda: (seen.append(len(decoder(engine).rows)), step())
    await all_of(engine, [request(4 + i, seed=i, n=2) for i in range(10)])
    assert max(seen) == 6
    with pytest.raises(ValueError, match=r"n must be between 1 and engine.max_batch_rows = 6, got 7"):
        await engine.generate(request(4, n=7))


def test_moves_close_the_holes_from_the_end():
    assert moves(5, [1, 4]) == ([1], [3])
    assert moves(3, [0, 1]) == ([0], [2])
    assert moves(3, [2]) == ([], [])


def test_groups_are_split_where_padding_would_cost_more():
    assert _group_width([4, 4, 4]) == 4
    assert _group_width([64, 1, 1, 1, 1, 1, 1, 1, 1, 1]) == 1
    assert _group_width([200]) == 200


# ---- coroutines -----------------------------------------------------------------------------------------------------


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
            found = []
            for turn in range(3):
                name = "pq"[(i + turn) % 2]
                found.append(await engines[name].generate(request(3 + i, seed=turn, n=2, policy=name)))
                with hold():
                    await asyncio.sleep(pauses[i % 2])
            return found

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
        await asyncio.sleep(0.05)
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


# ---- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lockstep", [True, False])
async def test_a_crash_reaches_every_caller_and_the_engine_goes_on(lockstep, tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer, lockstep=lockstep)
    step = decoder(engine).step

    def crash() -> None:
        raise MemoryError("no room")

    decoder(engine).step = crash
    found = await asyncio.gather(*(engine.generate(request(4 + i)) for i in range(5)), return_exceptions=True)
    assert [str(error) for error in found] == ["no room"] * 5
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
    asked = [request(88)]
    assert worst(model, asked, await all_of(engine, asked)) < 1e-4


async def test_deadlines(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    with pytest.raises(TimeoutError, match="policy 'p'"):
        await engine.generate(request(4, deadline=time.monotonic() - 1))
    decoder(engine).eos, step = frozenset(), decoder(engine).step
    decoder(engine).step = lambda: (time.sleep(0.005), step())
    with pytest.raises(TimeoutError):
        await engine.generate(request(4, max_tokens=80, deadline=time.monotonic() + 0.03))
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
    for asked, node, version in zip(requests, nodes, versions, strict=True):
        assert worst(other if version == {1} else model, [asked], [node]) < 1e-4


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
    decoder(engine).eos = frozenset()
    waiting = [asyncio.create_task(engine.generate(request(4 + i, max_tokens=60))) for i in range(4)]
    await asyncio.sleep(0.01)
    await engine.close()
    await engine.close()
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(error, EngineClosedError)
    with pytest.raises(EngineClosedError):
        await engine.generate(request(4))


# ---- support --------------------------------------------------------------------------------------------------------


def refused(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"policy 'p': the torch engine does not run .*{message}"):
        TorchEngine({"p": model}, tokenizer)


def test_unsupported_models_are_refused_by_name(tokenizer):
    from transformers import (
        BertConfig,
        BertModel,
        FalconConfig,
        FalconForCausalLM,
        Gemma2Config,
        Gemma2ForCausalLM,
        MambaConfig,
        MambaForCausalLM,
        T5Config,
        T5ForConditionalGeneration,
    )

    refused(build(vocab_size=30), tokenizer, r"vocabulary \(30\) is smaller than the tokenizer's \(40\)")
    sliding = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    refused(build(**sliding), tokenizer, "sliding_attention")
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4, "original_max_position_embeddings": 96}
    refused(build(llama, rope_parameters=dynamic), tokenizer, "changes with the length")
    small = {name: SIZE[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers")}
    mistral = MistralConfig(**SIZE | {"sliding_window": 8})
    refused(MistralForCausalLM(mistral), tokenizer, "sliding")
    refused(Gemma2ForCausalLM(Gemma2Config(**SIZE | {"head_dim": 8})), tokenizer, "soft-capped")
    refused(MambaForCausalLM(MambaConfig(**small)), tokenizer, "recurrent")
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 4}
    refused(T5ForConditionalGeneration(T5Config(vocab_size=40, **sizes)), tokenizer, "encoder-decoder")
    bert = BertConfig(**small, num_attention_heads=4, intermediate_size=32)
    refused(BertModel(bert), tokenizer, "no causal language model")
    falcon = FalconConfig(**small, num_attention_heads=4, alibi=True)
    refused(FalconForCausalLM(falcon), tokenizer, "attention interface")


def test_an_engine_needs_policies_and_rows(tokenizer):
    with pytest.raises(ValueError, match="at least one policy"):
        TorchEngine({}, tokenizer)
    with pytest.raises(ValueError, match="max_batch_rows must be at least 1"):
        TorchEngine({"p": build()}, tokenizer, max_batch_rows=0)
