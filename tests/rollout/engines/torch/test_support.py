"""Models that the torch engine refuses, by name or for what they decode."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from troupe.models.bases.tiny import build_tokenizer
from troupe.rollout.engines.base import UnsupportedModelError
from troupe.rollout.engines.plain_pass import PAGE
from troupe.rollout.engines.torch import support
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.engines.torch.forward import FusedForward
from troupe.rollout.engines.torch.support import in_dtype, prepare

from .conftest import ARCHITECTURES, SIZE, VOCABULARY, biased, build, gemma3, llama, qwen2


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
    windows = ["sliding_attention", "full_attention"]
    refused(build(gemma3, layer_types=windows, sliding_window=8), tokenizer, "layers of type .*sliding_attention")
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


def smollm2(**changes: object) -> PreTrainedModel:
    shape = {"hidden_size": 36, "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True}
    return llama(**shape | changes)


@pytest.mark.parametrize("architecture", [biased, smollm2, *ARCHITECTURES])
def test_honest_models_pass_in_both_precisions_and_keep_their_weights(architecture, tokenizer) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        for dtype in ("bfloat16", "float32"):
            model = in_dtype(build(architecture), dtype)
            before, names = copy.deepcopy(model.state_dict()), dict(model.named_parameters())
            prepare("p", model, tokenizer)
            assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
            assert all(parameter is names[name] for name, parameter in model.named_parameters())
            assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("architecture", [biased, qwen2, smollm2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_shifted_position_is_found(architecture, dtype, tokenizer, forward, monkeypatch) -> None:
    step = forward.step

    def shifted(self: Any, cache: Any, tokens: Tensor, positions: Tensor) -> Tensor:
        return step(self, cache, tokens, positions + 1)

    monkeypatch.setattr(forward, "step", shifted)
    refused(in_dtype(build(architecture), dtype), tokenizer, r"what it decodes in float32 is .* nats from its plain")


@pytest.mark.parametrize("architecture", [biased, qwen2, smollm2])
def test_a_layer_with_weights_before_a_small_update_is_found(architecture, tokenizer, monkeypatch) -> None:
    """As where the fused matrices kept what they were made of, while the model has new weights."""

    class Stale(FusedForward):
        def __init__(self, model: PreTrainedModel) -> None:
            older = copy.deepcopy(model)
            generator = torch.Generator().manual_seed(1)
            for parameter in older.model.layers[1].parameters():
                parameter += 1e-5 * torch.randn(parameter.shape, generator=generator).sign()
            super().__init__(older)

    monkeypatch.setattr(support, "FusedForward", Stale)
    refused(build(architecture), tokenizer, r"what it decodes in float32 is .* nats from its plain")


def test_it_reads_the_worlds_prompts_and_else_text(tokenizer, monkeypatch) -> None:
    read: list[list[int]] = []
    plain = support._plain
    monkeypatch.setattr(
        support, "_plain", lambda model, rows, *others: read.extend(rows) or plain(model, rows, *others)
    )
    prompts = [tuple(range(2, VOCABULARY)), (7, 7, 8)]
    TorchEngine({"p": build()}, tokenizer, prompts=prompts)
    assert read[0].tolist()[:12] == list(range(2, 14)) and read[2].tolist()[:17] == list(range(16, 33))
    read.clear()
    words = build_tokenizer([word.strip('".,:;()[]?') for word in PAGE.split()])  # most of the page
    prepare("p", build(vocab_size=len(words)), words)
    assert words.decode(read[0][:5]) == "A delivery robot waits at"
