"""Small models of several architectures, and their log-probs by plain ``transformers``."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from troupe.experience import Completion, Request, Sampling
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.engines.torch.forward import FusedForward, ModuleForward

VOCABULARY, EOS = 40, 1


SIZE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=96, bos_token_id=None, eos_token_id=EOS,
            pad_token_id=0)  # fmt: skip


def qwen3(**changes: object) -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SIZE | {"head_dim": 8} | changes))


def qwen2(**changes: object) -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**SIZE | changes))


def biased(**changes: object) -> PreTrainedModel:
    """A Qwen2 whose keys have biases as large as those of Qwen2.5-Coder-0.5B."""
    model = qwen2(**changes)
    with torch.no_grad():
        for layer in model.model.layers:
            bias = layer.self_attn.k_proj.bias
            bias.copy_(torch.randn_like(bias))
            bias *= 200 / bias.abs().max()
    return model


def llama(**changes: object) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZE | changes))


def gemma3(**changes: object) -> PreTrainedModel:
    """Without Gemma 3's sliding windows, which are refused; with heads wider than hidden_size / heads, scores scaled by
    another number than their width, norms of queries and keys and after each part, and scaled embeddings."""
    other = {"head_dim": 16, "query_pre_attn_scalar": 12, "layer_types": ["full_attention"] * 2}
    return Gemma3ForCausalLM(Gemma3TextConfig(**SIZE | other | changes))


def gpt2(**changes: object) -> PreTrainedModel:
    sizes = dict(n_embd=32, n_layer=2, n_head=4, n_positions=96, bos_token_id=None, eos_token_id=EOS)
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes | changes))


ARCHITECTURES = [qwen3, qwen2, llama, gemma3, gpt2]
FUSED = [qwen3, qwen2, llama]
"""Those that the fused forward pass computes; qwen2 is Qwen2.5, too."""


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
    sampling, logprobs = request.sampling, []
    for row, token in zip(logits.double() / sampling.temperature, tokens, strict=True):
        probabilities = sorted(((p, i) for i, p in enumerate(row.softmax(-1).tolist())), key=lambda x: (-x[0], x[1]))
        top_k = probabilities[: sampling.top_k or None]
        total, mass, nucleus = sum(p for p, _ in top_k), 0.0, []
        for p, i in top_k:
            if mass / total < sampling.top_p:
                nucleus.append((p, i))
            mass += p
        truncated = {i: p for p, i in nucleus}
        assert token in truncated, "a token outside of the truncated distribution"
        logprobs.append(math.log(truncated[token] / sum(truncated.values())))
    return torch.tensor(logprobs, dtype=torch.float64)


def worst(model: PreTrainedModel, requests: Sequence[Request], nodes: Sequence[Sequence[Completion]]) -> float:
    """The largest difference of a behaviour log-prob from the plain forward pass."""
    return max(
        (torch.tensor(c.logprobs, dtype=torch.float64) - plain_logprobs(model, r, c.token_ids)).abs().max().item()
        for r, node in zip(requests, nodes, strict=True)
        for c in node
    )


@pytest.fixture(params=["own code", "fused"])
def forward(request, monkeypatch) -> type:
    """The forward pass of the Llama family: the models' own code or the fused one."""
    if request.param == "fused":
        return FusedForward
    monkeypatch.setattr(FusedForward, "applies", staticmethod(lambda model: False))
    return ModuleForward
