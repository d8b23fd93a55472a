"""A small Qwen3 whose weights grow, and what its log-probabilities are by plain ``transformers``."""

import copy
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from troupe.models.bases.tiny import build_tokenizer
from troupe.rollout.engines.lora import PREFIX, A, Adapted, B
from troupe.rollout.engines.vllm import versions
from troupe.rollout.engines.vllm.engine import VllmEngine

DIGITS = build_tokenizer([f"w{i}" for i in range(60)])
Build = Callable[..., Qwen3ForCausalLM]
Logprobs = Callable[..., Tensor]

NEEDS_VLLM = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]  # vLLM warns of its own affairs
SHARES_ENGINES = [*NEEDS_VLLM, pytest.mark.asyncio(loop_scope="module")]
"""Marks of a file whose tests share engines, which take long to start."""


def adapted(model: Qwen3ForCausalLM, rank: int = 4, seed: int = 0) -> Adapted:
    """With random adapters on two layers."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for path in ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"):
        layer = model.get_submodule(path)
        weights[f"{PREFIX}{path}{A}"] = torch.randn(rank, layer.in_features, generator=generator)
        weights[f"{PREFIX}{path}{B}"] = torch.randn(layer.out_features, rank, generator=generator)
    return Adapted(model, weights, 0.5)


def install(monkeypatch: pytest.MonkeyPatch, **packages: str) -> None:
    """Of all ``packages`` these are installed, in these versions."""

    def version(package: str) -> str:
        if package not in packages:
            raise versions.PackageNotFoundError(package)
        return packages[package]

    monkeypatch.setattr(versions, "version", version)


@pytest.fixture(scope="session")
def digits() -> PreTrainedTokenizerFast:
    """Words w0 to w59."""
    return DIGITS


@pytest.fixture(scope="session")
def build(digits: PreTrainedTokenizerFast) -> Build:
    def built(seed: int = 0, **changes: object) -> Qwen3ForCausalLM:
        torch.manual_seed(seed)
        sizes = dict(vocab_size=len(digits), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                     num_attention_heads=2, num_key_value_heads=1, head_dim=32, max_position_embeddings=256,
                     tie_word_embeddings=True, eos_token_id=digits.eos_token_id, bos_token_id=None,
                     pad_token_id=digits.pad_token_id, initializer_range=0.2)  # fmt: skip
        return Qwen3ForCausalLM(Qwen3Config(**sizes | changes)).eval()

    return built


@pytest.fixture(scope="session")
def grown() -> Build:
    """``grown(model, seed)``: a copy with all weights moved a little, as by an update."""

    def grow(model: Qwen3ForCausalLM, seed: int, size: float = 0.05) -> Qwen3ForCausalLM:
        generator = torch.Generator().manual_seed(seed)
        learner = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in learner.parameters():
                parameter += size * torch.randn(parameter.shape, generator=generator)
        return learner

    return grow


@pytest.fixture(scope="session")
def spoil() -> Callable[[VllmEngine], Awaitable[None]]:
    """``spoil(engine)``: all weights of the model become 0, as vLLM's CPU build, which loses nothing, would not do."""

    async def zero_weights(engine: VllmEngine) -> None:
        def zeros() -> Iterator[tuple[str, Tensor]]:
            return ((name, torch.zeros_like(tensor)) for name, tensor in source.weights())

        source = engine.expected.source
        await engine.server.transfer.send(replace(source, weights=zeros))

    return zero_weights


@pytest.fixture(scope="session")
def plain_logprobs() -> Logprobs:
    """``plain_logprobs(model, prompt, tokens)``: (len(tokens),) nats, by one forward pass."""

    @torch.no_grad()
    def logprobs(
        model: Qwen3ForCausalLM, prompt: Sequence[int], tokens: Sequence[int], temperature: float = 1.0
    ) -> Tensor:
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1] / temperature
        return torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens)[:, None])[:, 0]

    return logprobs
