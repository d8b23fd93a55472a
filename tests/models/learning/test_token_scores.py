"""Scores and gradients in pieces, against a plain forward pass of transformers and autograd."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from troupe.algorithms.objectives import ClippedObjective
from troupe.errors import UnsupportedAttentionError
from troupe.experience import Sample, TokenBatch
from troupe.models.learning import fused_layers, token_scores
from troupe.models.learning.adapters import without_peft_warnings
from troupe.models.learning.packing import pack, rows_of
from troupe.models.learning.policy import compute_loss
from troupe.models.learning.token_scores import evaluate
from troupe.models.learning.tree_attention import ATTENTION, Tree

VOCABULARY, TEMPERATURE = 24, 0.7
TOLERANCES = [(torch.float64, 1e-9), (torch.float32, 1e-5)]
DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}


class Exact(torch.nn.Module):
    """Gemma's norm, which in transformers rounds to float32 within."""

    def __init__(self, norm: Gemma2RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * (1 + self.weight)


def build(kind: str, dtype: torch.dtype) -> PreTrainedModel:
    """A model of one kind with large random weights, whose norms are exact in float64."""
    torch.manual_seed(0)
    model: PreTrainedModel
    if kind == "gemma2":
        softcaps = {"final_logit_softcapping": 2.0, "attn_logit_softcapping": 3.0, "sliding_window": 7}
        model = Gemma2ForCausalLM(Gemma2Config(**SMALL, **softcaps, query_pre_attn_scalar=8))
    elif kind == "gpt_neox":
        sizes = {name: SMALL[name] for name in SMALL if name not in ("num_key_value_heads", "head_dim")}
        model = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes))
    else:
        model = LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=kind == "tied", attention_bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Gemma2RMSNorm):
                setattr(module, name, Exact(child))
            elif isinstance(child, LlamaRMSNorm):
                norm = torch.nn.RMSNorm(child.weight.shape, eps=child.variance_epsilon)
                norm.weight = child.weight
                setattr(module, name, norm)
    if kind == "lora":
        config = LoraConfig(r=2, target_modules=["q_proj", "lm_head"], init_lora_weights=False)
        with without_peft_warnings():
            model = get_peft_model(model, config).get_base_model()
    if kind == "frozen head":
        model.lm_head.requires_grad_(False)
    return model.to(dtype)


def samples() -> list[Sample]:
    """Two prompts that begin alike, of four samples each, and a later turn of one of them; all numbers are exact."""
    rng = Random(0)

    def text(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCABULARY) for _ in range(count))

    begin = text(6)
    drawn = []
    for prompt in (begin + text(3), begin + text(5)):
        for i in range(4):
            answer = text(rng.randint(1, 6))
            advantage = rng.choice([-12, -7, 2, 5]) / 8
            drawn.append(Sample("p", prompt, answer, (-1.0,) * len(answer), advantage, weight=0.125 * (i + 1)))
    first = drawn[0]
    return [*drawn, replace(first, prompt_ids=first.prompt_ids + first.token_ids + text(3), weight=0.5)]


def objective(batch: TokenBatch, rule: ClippedObjective) -> Callable[..., Any]:
    """``rule``, from an update's start that lies so far away that some ratios are clipped."""

    def compute(logprobs: Tensor, entropies: Tensor | None) -> Any:
        shift = 0.5 * (1.0 - 2.0 * (batch.targets % 2))
        return compute_loss(rule, batch, (logprobs, entropies), logprobs.detach() + shift, None)

    return compute


def plain(
    model: PreTrainedModel, batch: TokenBatch, rows: list[Sample], temperatures: Sequence[float] | None = None
) -> tuple[Tensor, Tensor]:
    """(B, C) log-probabilities and entropies by ``model``'s own forward pass, a sequence at a time, by autograd."""
    tables = torch.zeros(2, *batch.mask.shape, dtype=model.dtype)
    columns: list[list[Tensor]] = [[], []]
    model.set_attn_implementation("eager" if model.config.model_type == "gemma2" else "sdpa")
    for sample, temperature in zip(rows, temperatures or [TEMPERATURE] * len(rows), strict=True):
        ids = torch.tensor([sample.prompt_ids + sample.token_ids])
        scores = (model(input_ids=ids).logits[0, len(sample.prompt_ids) - 1 : -1] / temperature).log_softmax(-1)
        columns[0].append(scores[range(len(scores)), list(sample.token_ids)])
        columns[1].append(-(scores.exp() * scores).sum(-1))
    model.set_attn_implementation(ATTENTION)
    first, second = (t.masked_scatter(batch.mask, torch.cat(c)) for t, c in zip(tables, columns, strict=True))
    return first, second


def gradients(model: PreTrainedModel, loss: Tensor) -> Tensor:
    """(parameters,) all gradients in a row; they are reset."""
    loss.backward()
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


KINDS, MOST = ("tied", "untied", "frozen head", "lora", "gemma2", "gpt_neox"), (1, 5 * VOCABULARY, 1 << 25)
PAIRS = [(kind, most, *TOLERANCES[(i + j) % 2]) for i, kind in enumerate(KINDS) for j, most in enumerate(MOST)]


@pytest.mark.parametrize(("kind", "most", "dtype", "tolerance"), PAIRS)
def test_loss_and_gradients_are_those_of_a_plain_forward_pass(
    monkeypatch: pytest.MonkeyPatch, kind: str, most: int, dtype: torch.dtype, tolerance: float
) -> None:
    """A token at a time, five, and all at once; with and without entropies."""
    monkeypatch.setattr(token_scores, "MAX_LOGITS", most)
    model = build(kind, dtype)
    if kind == "gemma2":
        tolerance = max(tolerance, 1e-6)  # transformers' own softmax of soft-capped scores is in float32
    rows = rows_of(samples())
    batch, ordered = pack(rows), [sample for row in rows for sample in row]
    for rule in (ClippedObjective(), ClippedObjective(entropy=0.5)):
        compute = objective(batch, rule)
        expected = compute(*plain(model, batch, ordered))
        result = evaluate(model, batch, TEMPERATURE, compute, entropy=rule.entropy > 0)
        assert fused_layers.applies(model) == (kind not in ("lora", "gemma2", "gpt_neox"))
        assert result.loss.item() == pytest.approx(expected.loss.item(), rel=10 * tolerance)
        assert result.clipped == expected.clipped > 0
        of_plain = gradients(model, expected.loss)
        assert (gradients(model, result.loss) - of_plain).norm() <= tolerance * of_plain.norm()


def test_the_gradient_is_multiplied_by_the_losss_own() -> None:
    model, batch = build("tied", torch.float64), pack(rows_of(samples()))
    model.set_attn_implementation(ATTENTION)
    compute = objective(batch, ClippedObjective())
    once, thrice = (evaluate(model, batch, 1.0, compute, entropy=False).loss * factor for factor in (1, 3))
    assert torch.allclose(3 * gradients(model, once), gradients(model, thrice), rtol=1e-12)
    loss = evaluate(model, batch, 1.0, compute, entropy=False).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="differentiated once"):
        loss.backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_on_a_cpu_is_padded(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(token_scores, "few_sizes", lambda count: count + 5)
    seen, of = [], Tree.of
    monkeypatch.setattr(Tree, "of", lambda batch: seen.append(len(batch.positions)) or of(batch))
    model, batch = build("lora", dtype), pack(rows_of(samples()))
    model.set_attn_implementation(ATTENTION)
    token_scores.token_scores(model, batch, 1.0, entropy=False)
    assert seen == [len(batch.positions) + (5 if dtype == torch.bfloat16 else 0)]


@pytest.mark.parametrize("kind", ["tied", "lora", "gemma2"])
def test_padding_to_few_sizes_changes_no_score_and_no_gradient(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(token_scores, "few_sizes", lambda count: count + 5)
    model, batch = build(kind, torch.float64), pack(rows_of(samples()))
    model.set_attn_implementation(ATTENTION)
    padded = token_scores._in_few_sizes(batch)
    assert len(padded.input_ids) == len(padded.positions) == len(batch.input_ids) + 5
    found = []
    for each in (batch, padded):
        result = evaluate(model, each, TEMPERATURE, objective(each, ClippedObjective(entropy=0.5)), entropy=True)
        found.append((result.loss.detach(), gradients(model, result.loss)))
    for exact, of_padded in zip(*found, strict=True):
        assert torch.allclose(exact, of_padded, rtol=1e-9, atol=1e-12)


def test_bfloat16_is_near_float32() -> None:
    batch = pack(rows_of(samples()))
    tables = []
    for dtype in (torch.float32, torch.bfloat16):
        model = build("tied", dtype)
        model.set_attn_implementation(ATTENTION)
        scores, _ = token_scores.token_scores(model, batch, 1.0, entropy=False)
        assert scores.dtype == torch.float32
        tables.append(scores)
    assert (tables[0] - tables[1]).abs().max() < 0.3


def test_a_model_that_does_not_hand_on_the_tree_is_refused() -> None:
    model = build("lora", torch.float32)
    model.set_attn_implementation("sdpa")
    with pytest.raises(UnsupportedAttentionError, match="3 layers, of which 0 use"):
        token_scores.token_scores(model, pack(rows_of(samples())), 1.0, entropy=False)


class Largest(TorchDispatchMode):
    """The most numbers in a tensor that was made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return made


@pytest.mark.parametrize("entropy", [0.0, 0.1])
def test_nothing_grows_with_the_tokens_times_the_vocabulary_or_themselves(
    monkeypatch: pytest.MonkeyPatch, entropy: float
) -> None:
    """200 tokens and 3,000 words: 600,000 logits, of which 60,000 may be there at a time; the head has 24,000."""
    config = Qwen3Config(**SMALL | {"vocab_size": 3000, "hidden_size": 8, "intermediate_size": 8, "head_dim": 4})
    model, rng = Qwen3ForCausalLM(config), Random(0)
    answers = [tuple(rng.randrange(3000) for _ in range(50)) for _ in range(4)]
    prompt = tuple(rng.randrange(3000) for _ in range(400))
    batch = pack([[Sample("p", prompt, answer, (-1.0,) * 50, 1.0, 0.25) for answer in answers]])
    monkeypatch.setattr(token_scores, "MAX_LOGITS", 60_000)
    with Largest() as largest:
        rule = objective(batch, ClippedObjective(entropy=entropy))
        evaluate(model, batch, 1.0, rule, entropy=entropy > 0).loss.backward()
    assert largest.numbers <= 60_000 < len(batch.input_ids) ** 2


@DTYPES
@pytest.mark.parametrize("most", [1, 5 * VOCABULARY, 1 << 25])
def test_each_candidate_has_the_temperature_that_it_was_sampled_at(
    monkeypatch: pytest.MonkeyPatch, most: int, dtype: torch.dtype, tolerance: float
) -> None:
    """Of agents that share a policy and not the temperature: scores, entropies and gradients."""
    monkeypatch.setattr(token_scores, "MAX_LOGITS", most)
    model, rows = build("tied", dtype), rows_of(samples())
    batch, ordered = pack(rows), [sample for row in rows for sample in row]
    temperatures = [0.5 + 0.25 * (i % 3) for i in range(len(ordered))]
    compute = objective(batch, ClippedObjective(entropy=0.5))
    expected = compute(*plain(model, batch, ordered, temperatures))
    own = torch.tensor(temperatures, dtype=torch.float64)
    result = evaluate(model, batch, own, compute, entropy=True)
    assert result.loss.item() == pytest.approx(expected.loss.item(), rel=10 * tolerance)
    of_plain, of_result = gradients(model, expected.loss), gradients(model, result.loss)
    assert (of_result - of_plain).norm() <= tolerance * of_plain.norm()
    of_one = gradients(model, evaluate(model, batch, 0.75, compute, entropy=True).loss)
    assert (of_one - of_plain).norm() > 0.01 * of_plain.norm()
    one = torch.full_like(own, 0.75)
    assert torch.equal(of_one, gradients(model, evaluate(model, batch, one, compute, entropy=True).loss))
