"""The forward passes of the torch engine, the models' own and the fused one, against plain ``transformers``."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch

from troupe.kernels import products
from troupe.rollout.engines.torch import decoding, forward, support
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.engines.torch.forward import FusedForward, ModuleForward, shared_beginning

from ....worlds import slow_but
from .conftest import ARCHITECTURES, FUSED, all_of, build, decoder, gpt2, llama, qwen2, qwen3, request, worst

SAMPLINGS = [{}, {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"temperature": 1.5, "top_k": 12, "top_p": 0.9}]


@pytest.mark.parametrize("architecture", slow_but((qwen3, llama, gpt2), ARCHITECTURES))
async def test_logprobs_are_those_of_a_plain_forward_pass(architecture, forward, tokenizer):
    model = build(architecture)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    assert type(decoder(engine).forward) is (forward if architecture in FUSED else ModuleForward)
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


@pytest.mark.parametrize("architecture", FUSED)
@pytest.mark.parametrize("tiles", [False, True])
async def test_in_bfloat16_logprobs_are_as_near_as_the_models_own(architecture, tiles, tokenizer, monkeypatch):
    monkeypatch.setattr(products, "has_tiles", lambda: tiles)
    monkeypatch.setattr(products, "MIN_TURNED", 0)
    model, requests = build(architecture).bfloat16(), [request(length) for length in (1, 30, 7, 7, 19)]
    apart = []
    for fused in (False, True):
        monkeypatch.setattr(FusedForward, "applies", lambda _, fused=fused: fused)
        engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
        assert type(decoder(engine).forward) is (FusedForward if fused else ModuleForward)
        apart.append(worst(copy.deepcopy(model).float(), requests, await all_of(engine, requests)))
    assert 0 < apart[1] < 2 * apart[0]


@pytest.fixture
def multiplied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each product by a packed matrix, on a machine that packs the smallest of them."""
    if not (products.has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        pytest.skip("oneDNN has no bfloat16 here")
    monkeypatch.setattr(products, "packs", lambda: True)
    monkeypatch.setattr(products, "has_tiles", lambda: False)
    monkeypatch.setattr(products, "MIN_TURNED", 0)
    monkeypatch.setattr(decoding, "PACKED_FROM", 1)
    for module in (products, decoding):
        monkeypatch.setattr(module, "min_widened_rows", lambda: math.inf)
    rows = []
    way = products._onednn
    monkeypatch.setattr(
        products, "_onednn", lambda x, matrix, bias: (matrix.is_mkldnn and rows.append(len(x))) or way(x, matrix, bias)
    )
    return rows


def copies(engine: TorchEngine) -> list[torch.Tensor]:
    fused = decoder(engine).forward
    projections = (fused.head, *(each for layer in fused.layers for each in layer.projections))
    return [each.packed for each in projections if each.packed is not None]


@pytest.mark.parametrize("architecture", FUSED)
async def test_packed_matrices_are_those_of_the_present_weights(architecture, tokenizer, multiplied):
    """While rows decode, and not after; with new weights, those."""
    models = [build(architecture, seed=seed).bfloat16() for seed in (0, 1)]
    engine = TorchEngine({"p": copy.deepcopy(models[0])}, tokenizer)
    assert multiplied, "the test at the start decodes otherwise"
    requests = [request(length) for length in (1, 30, 7, 7, 19)]
    for version, model in enumerate(models):
        if version:
            await engine.load("p", model.state_dict(), version)
        multiplied.clear()
        nodes = await all_of(engine, requests)
        await engine.forget()  # once the worker is done
        assert multiplied and not copies(engine)
        assert worst(copy.deepcopy(model).float(), requests, nodes) < 0.1
    assert worst(copy.deepcopy(models[0]).float(), requests, nodes) > 0.5


async def test_packed_matrices_are_dropped_where_decoding_fails(tokenizer, multiplied, monkeypatch):
    engine = TorchEngine({"p": build().bfloat16()}, tokenizer)

    def fails(self: FusedForward, *given: object) -> torch.Tensor:
        assert copies(engine)
        raise ArithmeticError("no")

    monkeypatch.setattr(FusedForward, "step", fails)
    with pytest.raises(ArithmeticError):
        await engine.generate(request(7))
    assert not copies(engine)


async def test_without_memory_for_packed_matrices_rows_decode_by_the_others(tokenizer, multiplied, monkeypatch):
    model = build().bfloat16()
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    multiplied.clear()

    def lacks(weight: torch.Tensor) -> torch.Tensor | None:
        if len(copies(engine)) < 2:
            return products.packed(weight)
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")

    monkeypatch.setattr(forward, "packed", lacks)
    requests = [request(length) for length in (1, 30, 7)]
    nodes = await all_of(engine, requests)
    assert not multiplied and engine.drain()["faults/oom_decoding"] == 0
    assert worst(model.float(), requests, nodes) < 0.1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_prompts_that_begin_alike(architecture, tokenizer):
    model = build(architecture)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    beginning = request(20).prompt_ids
    requests = [replace(r, prompt_ids=beginning + r.prompt_ids) for r in (request(1), request(9), request(20, seed=1))]
    requests.append(replace(requests[1], prompt_ids=beginning, key=(99,)))  # itself the beginning of the others
    assert worst(model, requests, await all_of(engine, requests)) < 1e-4


async def test_a_context_of_any_length_takes_no_memory(tokenizer, monkeypatch):
    monkeypatch.setattr(forward, "POSITIONS", 8)  # so that the tables grow, in a prompt and between tokens
    model = build(max_position_embeddings=16_000_000)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    requests = [request(4), request(17), request(40)]
    assert worst(model, requests, await all_of(engine, requests)) < 1e-4
    tables = decoder(engine).forward
    assert len(tables.cos) == len(tables.sin) < 100


def test_the_beginning_of_prompts():
    ids = torch.tensor([[1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 6, 7]])
    assert shared_beginning(ids, torch.tensor([4, 5])) == 4
    assert shared_beginning(ids, torch.tensor([2, 5])) == 0  # two tokens, less than half of six
    assert shared_beginning(ids[:1], torch.tensor([5])) == 0


def test_what_is_not_fused_runs_the_models_own_code():
    assert not FusedForward.applies(build(gpt2))
    assert not FusedForward.applies(build().half())
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


async def test_a_dtype_of_its_own_leaves_the_model_alone(tokenizer, caplog):
    model = build()
    weights = copy.deepcopy(model.state_dict())
    with caplog.at_level("WARNING"):
        engine = TorchEngine({"p": model}, tokenizer, dtype="bfloat16")
    assert ("no instructions" in caplog.text) == (not support.multiplies_bfloat16())
    assert decoder(engine).model.dtype == torch.bfloat16
    assert decoder(engine).model.model.rotary_emb.inv_freq.dtype == torch.float32
    requests = [request(4), request(60)]
    assert worst(model, requests, await all_of(engine, requests)) < 0.5
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    other = build(seed=1)
    await engine.load("p", other.state_dict(), 1)
    assert worst(other, requests, await all_of(engine, requests)) < 0.5
    with pytest.raises(ValueError, match=r"engine\.dtype must be float32 or bfloat16, got 'int8'"):
        TorchEngine({"p": model}, tokenizer, dtype="int8")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_greedy_equals_transformers_generate(architecture, tokenizer):
    model = build(architecture)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    requests = [request(length, n=2, temperature=0.0, max_tokens=12) for length in (3, 17, 40)]
    for each, node in zip(requests, await all_of(engine, requests), strict=True):
        ids = torch.tensor([each.prompt_ids])
        expected = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12)
        for completion in node:
            assert completion.token_ids == tuple(expected[0, ids.shape[1] :].tolist())
            assert set(completion.logprobs) == {0.0}
