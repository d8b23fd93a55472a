"""Models that the torch engine refuses, by name."""

from __future__ import annotations

import pytest
from transformers import MistralConfig, MistralForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from troupe.rollout.engines.base import UnsupportedModelError
from troupe.rollout.engines.torch.engine import TorchEngine

from .conftest import SIZE, build, gemma3, llama


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
