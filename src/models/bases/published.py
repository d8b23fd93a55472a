"""The shapes of known base models that are not shipped, so that a dry run needs neither weights nor network."""

from __future__ import annotations

from transformers import LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config

_QWEN3 = {
    "vocab_size": 151_936,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
}

_CODER = {
    "vocab_size": 151_936,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32_768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "tie_word_embeddings": True,
}


def published_config(base: str) -> PretrainedConfig | None:
    """The configuration of ``base`` as published on the hub; None for models that are not known here."""
    match base:
        case "smollm2" | "smollm2_q4" | "HuggingFaceTB/SmolLM2-135M-Instruct":
            return LlamaConfig(
                vocab_size=49_152,
                hidden_size=576,
                intermediate_size=1536,
                num_hidden_layers=30,
                num_attention_heads=9,
                num_key_value_heads=3,
                max_position_embeddings=8192,
                rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
                tie_word_embeddings=True,
            )
        case "coder_q4" | "Qwen/Qwen2.5-Coder-0.5B-Instruct":
            return Qwen2Config(
                hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, **_CODER
            )
        case "Qwen/Qwen2.5-Coder-1.5B-Instruct":
            return Qwen2Config(
                hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, **_CODER
            )
        case "Qwen/Qwen2.5-Coder-3B":
            return Qwen2Config(
                hidden_size=2048, intermediate_size=11_008, num_hidden_layers=36, num_attention_heads=16, **_CODER
            )
        case "Qwen/Qwen3-1.7B":
            return Qwen3Config(
                hidden_size=2048,
                intermediate_size=6144,
                num_hidden_layers=28,
                num_attention_heads=16,
                tie_word_embeddings=True,
                **_QWEN3,
            )
        case "Qwen/Qwen3-8B":
            return Qwen3Config(
                hidden_size=4096,
                intermediate_size=12_288,
                num_hidden_layers=36,
                num_attention_heads=32,
                tie_word_embeddings=False,
                **_QWEN3,
            )
    return None
