"""The sizes of published base models, as far as a plan needs them where their files are not here."""

from __future__ import annotations

from typing import Any


def _qwen3(hidden: int, inner: int, layers: int, heads: int, *, tied: bool) -> dict[str, Any]:
    return dict(
        model_type="qwen3",
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=tied,
    )


def _coder(hidden: int, inner: int, layers: int, heads: int) -> dict[str, Any]:
    return dict(
        model_type="qwen2",
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
    )


_SMOLLM2 = dict[str, Any](
    model_type="llama",
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
_CODER = _coder(896, 4864, 24, 14)

PUBLISHED = {
    **dict.fromkeys(("smollm2", "smollm2_q4", "HuggingFaceTB/SmolLM2-135M-Instruct"), _SMOLLM2),
    **dict.fromkeys(("coder_q4", "Qwen/Qwen2.5-Coder-0.5B-Instruct"), _CODER),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": _coder(1536, 8960, 28, 12),
    "Qwen/Qwen2.5-Coder-3B": _coder(2048, 11_008, 36, 16),
    "Qwen/Qwen3-1.7B": _qwen3(2048, 6144, 28, 16, tied=True),
    "Qwen/Qwen3-8B": _qwen3(4096, 12_288, 36, 32, tied=False),
}
"""The arguments of transformers' configurations of models that a dry run knows without the network."""
